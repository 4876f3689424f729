"""Many conversations out of few: the examples with other numbers in them, so that many have one length."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

from tests.support.prompts import EXAMPLES

NUMBER = re.compile(r"\d+")


def variations(path: Path, count: int, seed: int = 0) -> Path:
    """`count` conversations, the examples themselves first. Every number keeps its digits' count."""
    examples = EXAMPLES.read_text().splitlines()
    with path.open("w") as file:
        for k in range(count):
            dice = random.Random(f"{seed}/{k}")
            record = json.loads(examples[k % len(examples)])
            for turn in record["conversations"] if k >= len(examples) else ():
                turn["content"] = _varied(turn["content"], dice)
            record["id"] = f"v{k}"
            file.write(json.dumps(record) + "\n")
    return path


def _varied(text: str, dice: random.Random) -> str:
    return NUMBER.sub(lambda found: _other(found[0], dice), text)


def _other(digits: str, dice: random.Random) -> str:
    return str(dice.randrange(1, 10)) + "".join(str(dice.randrange(10)) for _ in digits[1:])
