"""A small tokenizer with the chat template a test asks for, a target, and prompt files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hsqueue.contracts.target import Target

SPECIAL = ("<s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>")
VOCABULARY = 600


@pytest.fixture(scope="session")
def target() -> Target:
    return Target("org/model", "0" * 16, (2, 4, 5), "post", "bfloat16", 64, VOCABULARY)


@pytest.fixture(scope="session")
def tokenizer_directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | None], Path]:
    """Writes a byte-level BPE tokenizer with `template` that puts ``<s>`` before every text, and says where."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["the quick brown fox asks and the assistant answers"] * 20, trainer)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])

    def make(template: str | None) -> Path:
        directory = tmp_path_factory.mktemp("tokenizer")
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend, bos_token="<s>", eos_token="<|im_end|>", extra_special_tokens=list(SPECIAL[1:])
        )
        tokenizer.chat_template = template
        tokenizer.save_pretrained(str(directory))
        return directory

    return make


@pytest.fixture
def write_lines(tmp_path: Path) -> Callable[..., Path]:
    """Writes records, or raw lines given as bytes, to a JSONL file."""

    def write(records: Sequence[Any], name: str = "prompts.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records))
        return path

    return write
