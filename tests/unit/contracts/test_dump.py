from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsqueue.contracts.dump import AUX, INPUT_IDS, LAST, LAST_PRENORM, DumpMeta, expected_tensors
from hsqueue.contracts.errors import DumpMalformed
from tests.support.volume import make_meta

META = make_meta("hsq.r1.3.4294967297.0", 7)
COUNTS = st.integers(0, 1 << 40)
LISTS = st.lists(COUNTS, max_size=4).map(tuple)
METAS = st.builds(
    DumpMeta, rid=st.text(), num_tokens=COUNTS, prefix_len=COUNTS, chunks=LISTS, layers=LISTS, layers_asked=LISTS,
    layers_held=LISTS, norm=st.text(), dtype=st.text(), nonfinite=st.lists(st.text(), max_size=3).map(tuple),
    model=st.text(), server=st.text(), engine=st.text(), contract=st.just(1),
)  # fmt: skip


@given(METAS)
def test_metadata_comes_back_as_it_was_written(meta: DumpMeta) -> None:
    metadata = meta.to_metadata()
    assert all(type(value) is str for value in metadata.values())
    assert DumpMeta.from_metadata(metadata) == meta


@pytest.mark.parametrize("version", ["0", "2", "01", "1.0", "one", "", None])
def test_another_contract_version_is_named(version: str | None) -> None:
    metadata = META.to_metadata()
    del metadata["contract"]
    if version is not None:
        metadata["contract"] = version
    with pytest.raises(DumpMalformed, match="another contract version") as caught:
        DumpMeta.from_metadata(metadata)
    assert (caught.value.expected, caught.value.found) == (1, version)


@pytest.mark.parametrize("name", sorted(META.to_metadata().keys() - {"contract"}))
def test_a_missing_key_is_named(name: str) -> None:
    metadata = META.to_metadata()
    del metadata[name]
    with pytest.raises(DumpMalformed, match=f"lacks '{name}'"):
        DumpMeta.from_metadata(metadata)


@pytest.mark.parametrize("name", ["num_tokens", "prefix_len"])
@pytest.mark.parametrize(
    "value", ["", "-1", "1.5", "1e3", "true", "null", '"7"', "[7]", "NaN", "Infinity", "seven", "7 7", "9" * 5000]
)
def test_a_count_that_is_none_is_damage(name: str, value: str) -> None:
    with pytest.raises(DumpMalformed, match="damaged"):
        DumpMeta.from_metadata({**META.to_metadata(), name: value})


@pytest.mark.parametrize("name", ["chunks", "layers", "layers_asked", "layers_held"])
@pytest.mark.parametrize("value", ["", "7", "{}", '"[1]"', "[1.5]", "[true]", "[null]", "[[1]]", "[" * 100_000])
def test_a_list_of_anything_but_integers_is_damage(name: str, value: str) -> None:
    with pytest.raises(DumpMalformed, match="damaged"):
        DumpMeta.from_metadata({**META.to_metadata(), name: value})


def test_chunks_of_a_negative_size_are_damage_even_where_they_add_up() -> None:
    with pytest.raises(DumpMalformed, match="damaged"):
        DumpMeta.from_metadata({**META.to_metadata(), "chunks": "[12, -5]"})


@pytest.mark.parametrize("value", ["", "null", '"aux"', "[1]", '{"aux": 1}'])
def test_names_of_tensors_that_are_none_are_damage(value: str) -> None:
    with pytest.raises(DumpMalformed, match="damaged"):
        DumpMeta.from_metadata({**META.to_metadata(), "nonfinite": value})


@given(st.dictionaries(st.sampled_from(sorted(META.to_metadata())), st.text(max_size=20), min_size=1))
def test_no_value_of_a_key_makes_anything_but_a_named_error(changes: dict[str, str]) -> None:
    try:
        found = DumpMeta.from_metadata({**META.to_metadata(), **changes})
    except DumpMalformed:
        return
    assert found.to_metadata().keys() == META.to_metadata().keys()
    assert found.num_tokens >= 0


@pytest.mark.parametrize(
    ("norm", "names"),
    [
        ("post", [INPUT_IDS, AUX, LAST]),
        ("pre", [INPUT_IDS, AUX, LAST_PRENORM]),
        ("both", [INPUT_IDS, AUX, LAST, LAST_PRENORM]),
    ],
)
def test_a_norm_says_which_last_states_a_dump_holds(norm: str, names: list[str]) -> None:
    assert [name for name, _, _ in expected_tensors(5, 3, 8, norm, "float16")] == names


@pytest.mark.parametrize(("dtype", "code"), [("bfloat16", "BF16"), ("float16", "F16"), ("float32", "F32")])
def test_shapes_and_dtypes_are_the_contracts(dtype: str, code: str) -> None:
    assert expected_tensors(5, 3, 8, "both", dtype) == (
        (INPUT_IDS, "I64", (5,)), (AUX, code, (5, 24)), (LAST, code, (5, 8)), (LAST_PRENORM, code, (5, 8)),
    )  # fmt: skip
