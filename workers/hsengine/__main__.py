"""``python -m hsengine``: the embedded engine. ``python -m hsengine model-dir``: where its default model lies."""

from __future__ import annotations

import sys

from hsengine.options import parse
from hsengine.tiny import model_directory
from hsqueue.contracts.errors import DependencyMissing, HsqueueError, UsageError


def main(arguments: list[str]) -> int:
    """Exit status: 0 after a clean end, 1 where the engine could not start, 2 for a wrong command line."""
    if arguments == ["model-dir"]:
        print(model_directory())
        return 0
    options = parse(arguments)
    try:
        # torch and transformers take seconds to import, and are an optional part of the installation.
        try:
            from hsengine.serve import serve
        except ModuleNotFoundError as error:
            raise DependencyMissing(
                f"the embedded engine needs {error.name}", do="pip install 'hsqueue[engine]'"
            ) from None
        serve(options)
    except HsqueueError as error:
        print(f"hsengine: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
