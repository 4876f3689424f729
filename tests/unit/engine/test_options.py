from __future__ import annotations

from pathlib import Path

import pytest

from hscapture.config import from_environment
from hsengine.options import DTYPES, FORMS, parse
from hsqueue.contracts import target


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HSQ_DUMP_DIR", "HSQ_NORM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HSQ_LAYERS", "1,2")


def test_the_command_line_comes_before_the_environment() -> None:
    assert from_environment(parse([]).environment()).layers == "1,2"
    settings = from_environment(parse(["--layers", "all", "--norm", "pre", "--dump-dir", "/x"]).environment())
    assert (settings.layers, settings.norm, settings.dump_dir) == ("all", "pre", Path("/x"))


def test_a_model_is_named_by_its_whole_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse(["--model", "m"]).model == tmp_path / "m"
    assert parse([]).model is None


@pytest.mark.parametrize(
    "wrong", [["--chunk", "0"], ["--dtype", "int8"], ["--norm", "none"], ["--dump-layout", "x"], ["--port", "x"]]
)
def test_wrong_arguments_end_with_status_2(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(wrong)
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_choices_repeat_what_is_declared_elsewhere() -> None:
    """They are repeated so that a wrong command line is refused before torch is imported."""
    from hscapture.legacy import Form

    assert set(DTYPES) <= set(target.DTYPES)
    assert set(FORMS) == {form.value for form in Form}
