"""The engine's card, written when the model is loaded and replaced whole by a restarted engine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hscapture.ridlayout import make_dump_directory
from hsqueue.contracts.card import CARD_NAME, EngineCard


def write_card(directory: Path, card: EngineCard) -> Path:
    """Puts the card into `directory` by one rename and returns its path. Raises OSError."""
    make_dump_directory(directory)
    final = directory / CARD_NAME
    descriptor, temporary = tempfile.mkstemp(prefix=f".{CARD_NAME}-", dir=directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(card.to_json())
            # As readable as the dumps beside it; the directory decides who gets that far.
            os.fchmod(descriptor, 0o644)
        Path(temporary).replace(final)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return final
