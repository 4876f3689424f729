"""Trains the default model's tokenizer: ``python -m hsengine.train_tokenizer PROMPTS.jsonl DIRECTORY``.

Run once by hand; its result is shipped in ``assets/tokenizer``. See ``assets/README.md``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 4096
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
    "{{ '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML; the generation tags let a planner ask which tokens are an assistant's."""


def texts(path: Path) -> Iterator[str]:
    """Every turn of every conversation of a JSONL file of ``{"conversations": [{"role", "content"}]}``."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            for turn in json.loads(line)["conversations"]:
                yield turn["content"]
                yield turn["role"] + "\n"


def train(path: Path) -> Tokenizer:
    """A byte-level BPE of VOCABULARY entries, the special tokens first, so any text can be encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(path), trainer)
    return tokenizer


def main(prompts: str, directory: str) -> None:
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    train(Path(prompts)).save(str(target / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 4096,
        "chat_template": CHAT_TEMPLATE,
    }
    (target / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
