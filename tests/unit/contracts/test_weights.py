from __future__ import annotations

from pathlib import Path

import pytest

from hsqueue.contracts.weights import SAMPLE_BYTES, weights_digest


def make_model(directory: Path, weights: bytes = b"w" * 100) -> Path:
    directory.mkdir()
    (directory / "config.json").write_text('{"hidden_size": 8}')
    (directory / "model.safetensors").write_bytes(weights)
    return directory


def test_a_copy_elsewhere_has_the_same_digest(tmp_path: Path) -> None:
    assert weights_digest(make_model(tmp_path / "a")) == weights_digest(make_model(tmp_path / "b"))


@pytest.mark.parametrize("place", [0, SAMPLE_BYTES - 1, 2 * SAMPLE_BYTES, 3 * SAMPLE_BYTES - 1])
def test_other_weights_at_either_end_have_another_digest(tmp_path: Path, place: int) -> None:
    weights = bytearray(3 * SAMPLE_BYTES)
    before = weights_digest(make_model(tmp_path / "a", bytes(weights)))
    weights[place] = 1
    assert weights_digest(make_model(tmp_path / "b", bytes(weights))) != before


def test_a_file_of_between_one_and_two_samples_is_covered_whole(tmp_path: Path) -> None:
    weights = bytearray(SAMPLE_BYTES + 10)
    before = weights_digest(make_model(tmp_path / "a", bytes(weights)))
    weights[SAMPLE_BYTES] = 1
    assert weights_digest(make_model(tmp_path / "b", bytes(weights))) != before


def test_another_configuration_or_one_more_file_has_another_digest(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    digests = {weights_digest(model), weights_digest(model, dummy=True)}
    (model / "extra.bin").write_bytes(b"x")
    digests.add(weights_digest(model))
    (model / "config.json").write_text('{"hidden_size": 16}')
    digests |= {weights_digest(model), weights_digest(model, dummy=True)}
    assert len(digests) == 5


def test_a_readme_changes_nothing(tmp_path: Path) -> None:
    model = make_model(tmp_path / "a")
    before = weights_digest(model)
    (model / "README.md").write_text("x")
    assert weights_digest(model) == before


def test_dummy_weights_do_not_count(tmp_path: Path) -> None:
    one, other = make_model(tmp_path / "a"), make_model(tmp_path / "b", b"other")
    assert weights_digest(one, dummy=True) == weights_digest(other, dummy=True)


def test_a_directory_without_a_configuration_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        weights_digest(tmp_path)
