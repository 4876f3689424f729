"""The model's tokenizer, loaded when the first request brings text instead of token ids."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from hsqueue.contracts.errors import SampleRefused


class Text:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @cached_property
    def _tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        try:
            return AutoTokenizer.from_pretrained(self._directory, local_files_only=True)
        except (OSError, ValueError):
            return None

    def encode(self, text: str) -> list[int]:
        """Token ids. Raises SampleRefused where the model directory has no tokenizer."""
        if self._tokenizer is None:
            raise SampleRefused("The engine's model has no tokenizer; send input_ids")
        ids: list[int] = self._tokenizer(text)["input_ids"]
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of a completion; empty where there is none, or no tokenizer."""
        if not ids or self._tokenizer is None:
            return ""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text
