"""Prompts to a run, end to end."""

from __future__ import annotations

import dataclasses
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hsqueue.contracts.errors import FingerprintMismatch, NothingToDo, UsageError, VolumeUnusable
from hsqueue.contracts.rid import RUN_ID
from hsqueue.contracts.sample import Sample
from hsqueue.contracts.target import Target
from hsqueue.planning import draft, readers
from hsqueue.planning.commit import rejected_of_failed_plan
from hsqueue.planning.masks import PLACEHOLDER
from hsqueue.planning.plan import PlanOptions, fingerprint_of, load_plan, load_run, make_plan
from hsqueue.planning.rejects import Reason, read_rejected
from hsqueue.planning.shards import read_shard
from hsqueue.planning.tokens import Tokenizer
from hsqueue.store.layout import RunLayout

WriteLines = Callable[..., Path]
OPTIONS = PlanOptions(max_length=64, shard_size=4)
CHATML = (
    "{% for m in messages %}{% if m.name == 'refused' %}{{ raise_exception('no') }}{% endif %}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + (m.name or '') + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def tokens(id: object, *ids: int, mask: list[int] | None = None) -> dict[str, Any]:
    return {"id": id, "input_ids": list(ids), **({"loss_mask": mask} if mask is not None else {})}


def samples(root: Path) -> list[Sample]:
    info = load_run(root)
    return [
        one
        for shard in range(info.shards)
        for one in read_shard(RunLayout(root).plan_shard(shard), info.shard_range(shard))
    ]


def left_in(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir()) if root.exists() else []


def test_samples_keep_their_order_and_get_dense_indices(
    write_lines: WriteLines, target: Target, tmp_path: Path
) -> None:
    records = [tokens(f"r{i}", i, i + 1) for i in range(11)]
    records.insert(5, tokens("bad", 10_000))
    result = make_plan([write_lines(records)], tmp_path / "run", target, None, OPTIONS)
    found = samples(tmp_path / "run")
    assert [one.index for one in found] == list(range(11))
    assert [one.id for one in found] == [f"r{i}" for i in range(11)]
    assert [list(one.input_ids) for one in found] == [[i, i + 1] for i in range(11)]
    assert (result.info.samples, result.info.shards, result.info.tokens) == (11, 3, 22)
    assert RUN_ID.fullmatch(result.info.run)
    assert result.made
    assert left_in(tmp_path / "run") == ["plan", "run.json"]


def test_the_report_says_what_went_in_and_came_out(write_lines: WriteLines, target: Target, tmp_path: Path) -> None:
    one = write_lines([tokens("a", 1, 2, mask=[0, 0]), tokens("b", 1, 2, 3), b"{"], "one.jsonl")
    two = write_lines([tokens("c", 1), tokens("a", 1)], "two.jsonl")
    result = make_plan([one, two], tmp_path / "run", target, None, OPTIONS)
    report = load_plan(tmp_path / "run")
    assert report == result.report
    assert (report.run, report.samples, report.tokens) == (result.info.run, 3, 6)
    assert (report.supervised_tokens, report.unsupervised) == (4, 1)
    assert report.rejected == result.rejected == {"bad json": 1, "duplicate id": 1}
    assert [(source.file, source.samples) for source in report.sources] == [(str(one), 2), (str(two), 1)]
    assert (report.lengths.shortest, report.lengths.longest) == (1, 3)
    assert [(r.file, r.line, r.id) for r in read_rejected(RunLayout(tmp_path / "run").rejected)] == [
        (str(one), 3, None),
        (str(two), 2, "a"),
    ]


HALF_SURROGATE = json.dumps({"id": "u", "text": "\ud800"}).encode()
ONE_OF_EACH: dict[Reason, Any] = {
    Reason.BAD_JSON: b'{"id": "x",',
    Reason.LINE_TOO_LONG: b'{"id": "' + b"x" * 5000 + b'"}',
    Reason.UNKNOWN_FORM: {"id": "f", "question": "q"},
    Reason.MISSING_ID: {"text": "a"},
    Reason.UNUSABLE_ID: {"id": 1.5, "text": "a"},
    Reason.DUPLICATE_ID: tokens("good", 1),
    Reason.UNKNOWN_ROLE: {"id": "r", "messages": [{"role": "narrator", "content": "x"}]},
    Reason.UNSUPPORTED_CONTENT: {"id": "i", "messages": [{"role": "user", "content": [{"type": "image"}]}]},
    Reason.BAD_TOOLS: {"id": "t", "messages": [{"role": "user", "content": "x"}], "tools": [1]},
    Reason.BAD_UNICODE: HALF_SURROGATE,
    Reason.EMPTY: {"id": "e", "messages": []},
    Reason.BAD_TOKENS: {"id": "b", "input_ids": ["1"]},
    Reason.BAD_MASK: tokens("m", 1, mask=[7]),
    Reason.MASK_LENGTH: tokens("l", 1, 2, mask=[1]),
    Reason.TEMPLATE_FAILED: {"id": "tf", "messages": [{"role": "user", "content": "x", "name": "refused"}]},
    Reason.TURN_NOT_FOUND: {
        "id": "n",
        "messages": [{"role": "assistant", "content": PLACEHOLDER}, {"role": "user", "content": PLACEHOLDER}],
    },
    Reason.TOKENIZER_FAILED: {"id": "tk", "messages": [{"role": "user", "content": "x", "name": "\ud800"}]},
    Reason.OUTSIDE_VOCABULARY: tokens("v", 600),
    Reason.OVER_LENGTH: tokens("o", *range(65)),
    Reason.TOO_FEW_SUPERVISED: {"id": "s", "messages": [{"role": "user", "content": "nobody answers"}]},
}  # fmt: skip


def test_there_is_a_line_for_each_reason() -> None:
    assert set(ONE_OF_EACH) == set(Reason)


@pytest.fixture(scope="module")
def chatml(tokenizer_directory: Callable[[str | None], Path]) -> Tokenizer:
    return Tokenizer.load(tokenizer_directory(CHATML))


@pytest.mark.parametrize("reason", list(Reason))
def test_every_rejected_line_is_counted_with_its_place(
    write_lines: WriteLines,
    target: Target,
    tmp_path: Path,
    chatml: Tokenizer,
    reason: Reason,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readers, "RECORD_LIMIT", 4096)
    path = write_lines([tokens("good", 1, 2), ONE_OF_EACH[reason], tokens("also good", 3)])
    options = dataclasses.replace(OPTIONS, min_loss_tokens=1)
    result = make_plan([path], tmp_path / "run", target, chatml, options)
    assert result.rejected == {reason.value: 1}
    assert result.info.samples == 2
    [one] = read_rejected(RunLayout(tmp_path / "run").rejected)
    assert (one.file, one.line, one.reason) == (str(path), 2, reason)
    assert one.detail
    assert "\n" not in one.detail


def test_conversations_and_texts_come_out_in_their_order(
    write_lines: WriteLines, target: Target, tmp_path: Path, chatml: Tokenizer
) -> None:
    talk = [{"from": "human", "value": "ask"}, {"from": "gpt", "value": "answers"}]
    records = [
        {"id": "1", "conversations": talk},
        {"id": "2", "text": "fox"},
        tokens("3", 5),
        {"id": "4", "prompt": "a"},
    ]
    make_plan([write_lines(records)], tmp_path / "run", target, chatml, OPTIONS)
    found = samples(tmp_path / "run")
    assert [one.id for one in found] == ["1", "2", "3", "4"]
    expected = chatml._tokenizer.apply_chat_template(
        [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "answers"}],
        tokenize=True,
        return_dict=True,
    )["input_ids"]
    assert list(found[0].input_ids) == expected
    assert 0 < sum(found[0].loss_mask) < len(expected)
    assert all(one.loss_mask == b"\1" * one.tokens for one in found[1:])


def test_ids_can_be_made_of_lines(write_lines: WriteLines, target: Target, tmp_path: Path) -> None:
    path = write_lines([{"input_ids": [1]}, tokens("own", 2)])
    result = make_plan([path], tmp_path / "run", target, None, dataclasses.replace(OPTIONS, ids="line"))
    assert [one.id for one in samples(tmp_path / "run")] == [f"{path}:1", "own"]
    with pytest.raises(FingerprintMismatch, match="ids"):
        result.info.fingerprint.require(fingerprint_of([path], target, None, OPTIONS), tmp_path)


def test_an_id_is_free_again_where_its_record_was_rejected(
    write_lines: WriteLines, target: Target, tmp_path: Path
) -> None:
    path = write_lines([tokens("a", 600), tokens("a", 1), tokens("a", 2)])
    result = make_plan([path], tmp_path / "run", target, None, OPTIONS)
    assert [list(one.input_ids) for one in samples(tmp_path / "run")] == [[1]]
    assert result.rejected == {"token id outside the vocabulary": 1, "duplicate id": 1}


def test_planning_again_returns_the_run_that_is_there(write_lines: WriteLines, target: Target, tmp_path: Path) -> None:
    path, root = write_lines([tokens("a", 1)]), tmp_path / "run"
    first = make_plan([path], root, target, None, OPTIONS)
    before = RunLayout(root).plan_shard(0).stat()
    again = make_plan([path], root, target, None, OPTIONS)
    assert (again.info, again.report) == (first.info, first.report)
    assert (first.made, again.made) == (True, False)
    assert RunLayout(root).plan_shard(0).stat() == before


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"options": PlanOptions(max_length=63, shard_size=4)}, "max_length"),
        ({"options": PlanOptions(max_length=64, shard_size=5)}, "shard_size"),
        ({"options": PlanOptions(max_length=64, shard_size=4, min_loss_tokens=1)}, "min_loss_tokens"),
        ({"options": PlanOptions(max_length=64, shard_size=4, ids="line")}, "ids"),
        ({"records": [tokens("a", 2)]}, "dataset"),
        ({"weights": "1" * 16}, "weights"),
    ],
)
def test_a_run_of_something_else_is_refused_by_field(
    write_lines: WriteLines, target: Target, tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    path, root = write_lines([tokens("a", 1)]), tmp_path / "run"
    made = make_plan([path], root, target, None, OPTIONS)
    path = write_lines(change.get("records", [tokens("a", 1)]))
    other = dataclasses.replace(target, weights=change.get("weights", target.weights))
    with pytest.raises(FingerprintMismatch, match=field):
        make_plan([path], root, other, None, change.get("options", OPTIONS))
    assert load_run(root) == made.info
    assert left_in(root) == ["plan", "run.json"]


def test_another_template_is_another_fingerprint(
    write_lines: WriteLines, target: Target, tmp_path: Path, tokenizer_directory: Callable[[str | None], Path]
) -> None:
    path, own = write_lines([{"id": "a", "text": "fox"}]), tmp_path / "own.jinja"
    own.write_text("{{ messages[0].content }}", encoding="utf-8")
    directory = tokenizer_directory(CHATML)
    one = fingerprint_of([path], target, Tokenizer.load(directory), OPTIONS)
    two = fingerprint_of([path], target, Tokenizer.load(directory, own), OPTIONS)
    assert set(one.differences(two)) == {"chat_template"}


def test_the_fingerprint_beforehand_is_the_run_s_own(write_lines: WriteLines, target: Target, tmp_path: Path) -> None:
    path = write_lines([tokens("a", 1)])
    before = fingerprint_of([path], target, None, OPTIONS)
    assert make_plan([path], tmp_path / "run", target, None, OPTIONS).info.fingerprint == before


def test_nothing_to_do_lists_the_reasons_and_keeps_the_list(
    write_lines: WriteLines, target: Target, tmp_path: Path
) -> None:
    path, root = write_lines([b"{", tokens("a", 600), tokens("b", 601)]), tmp_path / "run"
    with pytest.raises(NothingToDo, match=r"2 token id outside the vocabulary, 1 bad json.*rejected\.jsonl"):
        make_plan([path], root, target, None, OPTIONS)
    assert left_in(root) == ["rejected.jsonl"]
    assert len(list(read_rejected(rejected_of_failed_plan(root)))) == 3
    make_plan([write_lines([tokens("a", 1)])], root, target, None, OPTIONS)
    assert left_in(root) == ["plan", "run.json"]


def test_no_record_at_all_is_nothing_to_do(write_lines: WriteLines, target: Target, tmp_path: Path) -> None:
    with pytest.raises(NothingToDo, match="no record at all"):
        make_plan([write_lines([b"", b"  "])], tmp_path / "run", target, None, OPTIONS)
    assert left_in(tmp_path / "run") == []


def test_a_full_volume_leaves_nothing(
    write_lines: WriteLines, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(draft, "write_shard", full)
    with pytest.raises(VolumeUnusable, match="No space left"):
        make_plan([write_lines([tokens(str(i), 1) for i in range(9)])], tmp_path / "run", target, None, OPTIONS)
    assert left_in(tmp_path / "run") == []


def test_a_source_that_changes_meanwhile_leaves_nothing(
    write_lines: WriteLines, target: Target, tmp_path: Path
) -> None:
    def grow(_: int) -> None:
        write_lines([tokens("a", 1, 2)])

    path = write_lines([tokens("a", 1)])
    with pytest.raises(UsageError, match="changed while it was being planned"):
        make_plan([path], tmp_path / "run", target, None, OPTIONS, grow)
    assert left_in(tmp_path / "run") == []


def test_text_without_a_tokenizer_says_where_and_what_to_do(
    write_lines: WriteLines, target: Target, tmp_path: Path
) -> None:
    path = write_lines([tokens("a", 1), {"id": "b", "text": "fox"}])
    with pytest.raises(UsageError, match=r"prompts\.jsonl:2 has to be tokenised.*--tokenizer"):
        make_plan([path], tmp_path / "run", target, None, OPTIONS)


def test_a_run_inside_its_prompts_is_refused(write_lines: WriteLines, target: Target, tmp_path: Path) -> None:
    write_lines([tokens("a", 1)])
    with pytest.raises(UsageError, match="lies inside the prompts"):
        make_plan([tmp_path], tmp_path / "run", target, None, OPTIONS)


def test_leftovers_of_planners_that_died_are_removed(write_lines: WriteLines, target: Target, tmp_path: Path) -> None:
    dead = tmp_path / "run" / "plan-0123456789.tmp" / "000"
    dead.mkdir(parents=True)
    (dead / "shard-000000.parquet").touch()
    make_plan([write_lines([tokens("a", 1)])], tmp_path / "run", target, None, OPTIONS)
    assert left_in(tmp_path / "run") == ["plan", "run.json"]


def test_progress_counts_records(write_lines: WriteLines, target: Target, tmp_path: Path) -> None:
    seen: list[int] = []
    path = write_lines([tokens(str(i), 1) for i in range(600)])
    make_plan([path], tmp_path / "run", target, None, OPTIONS, seen.append)
    assert seen == [256, 512, 600]


@pytest.mark.parametrize(
    "options",
    [{"max_length": 0}, {"max_length": 1, "shard_size": 0}, {"max_length": 1, "min_loss_tokens": -1},
     {"max_length": 1, "ids": "hash"}],
)  # fmt: skip
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--"):
        PlanOptions(**options)
