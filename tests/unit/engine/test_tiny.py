from __future__ import annotations

import hashlib
import json
import multiprocessing
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from hsengine import tiny
from hsqueue.contracts.layers import eagle3_layers
from hsqueue.contracts.weights import weights_digest

WEIGHTS_SHA256 = "ba07f39cb85787a65a348e1df0ab57c3f71880c1ef40b1c19f0cb14d480833d6"
"""Runs are bound to these bytes by their fingerprint; a deliberate change needs another ``tiny.NAME``."""


def test_the_weights_are_the_same_bytes_everywhere(tiny_directory: Path) -> None:
    content = (tiny_directory / "model.safetensors").read_bytes()
    assert hashlib.sha256(content).hexdigest() == WEIGHTS_SHA256


def test_the_weights_have_the_promised_spread() -> None:
    values = struct.unpack("<4096f", tiny.weights("some.weight", 4096))
    mean = sum(values) / len(values)
    deviation = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
    assert abs(mean) < 0.02
    assert abs(deviation - tiny.STANDARD_DEVIATION) < 0.01
    assert struct.unpack("<3f", tiny.weights("a.norm.weight", 3)) == (1.0, 1.0, 1.0)


def test_every_tensor_has_its_shape(tiny_directory: Path) -> None:
    with safe_open(tiny_directory / "model.safetensors", "pt") as file:
        found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    assert found == dict(tiny.shapes())


def test_it_is_deep_enough_for_eagle3() -> None:
    assert eagle3_layers(int(str(tiny.CONFIG["num_hidden_layers"]))) == (2, 4, 5)


def test_the_tokenizer_renders_conversations_and_knows_whose_tokens_are_whose(tiny_directory: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_directory, local_files_only=True)
    assert len(tokenizer) == tiny.CONFIG["vocab_size"]
    assert tokenizer.eos_token_id == tiny.CONFIG["eos_token_id"]
    turns = [{"role": "user", "content": "2+2? ☃"}, {"role": "assistant", "content": "It is 4."}]
    found = tokenizer.apply_chat_template(turns, return_dict=True, return_assistant_tokens_mask=True)
    text = "<|im_start|>user\n2+2? ☃<|im_end|>\n<|im_start|>assistant\nIt is 4.<|im_end|>\n"
    assert tokenizer.decode(found["input_ids"]) == text
    supervised = [token for token, mask in zip(found["input_ids"], found["assistant_masks"], strict=True) if mask]
    assert tokenizer.decode(supervised) == "It is 4.<|im_end|>"


def make_in_child(root: str, barrier: object) -> None:
    import os

    os.environ["HSQ_MODEL_CACHE"] = root
    barrier.wait()  # type: ignore[attr-defined]
    tiny.model_directory()


def test_two_processes_may_make_it_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    children = [context.Process(target=make_in_child, args=(str(tmp_path), barrier)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert [path.name for path in tmp_path.iterdir()] == [tiny.NAME]
    assert weights_digest(tmp_path / tiny.NAME)


def test_a_failed_build_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("HSQ_MODEL_CACHE", str(tmp_path))
    monkeypatch.setattr(tiny, "build", fail)
    with pytest.raises(OSError, match="No space left"):
        tiny.model_directory()
    assert list(tmp_path.iterdir()) == []


def test_asking_for_its_directory_imports_nothing_heavy(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    code = "import sys; from hsengine.__main__ import main; main(['model-dir']); print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": f"{root}:{root / 'workers'}", "HSQ_MODEL_CACHE": str(tmp_path)},
    )  # fmt: skip
    directory, modules = done.stdout.splitlines()
    assert json.loads((Path(directory) / "config.json").read_text())["model_type"] == "llama"
    assert "'torch'" not in modules
    assert "'transformers'" not in modules
