"""``python -m tests.fuzz ITEMS [SEED]``: feeds that many items, spread over all readers, and prints a table."""

from __future__ import annotations

import sys

from tests.fuzz.rounds import Tally, feed, memory_limit, spread


def main(items: int, seed: int) -> None:
    memory_limit(2 << 30)
    tallies = [feed(name, count, seed) for name, count in spread(items).items()]
    print("| reader | items | refused | accepted, and right | slowest item | seconds |")
    print("|---|---|---|---|---|---|")
    for tally in [*tallies, Tally.of_all(tallies)]:
        print(tally.row())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
