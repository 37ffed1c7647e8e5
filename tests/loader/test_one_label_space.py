"""Sources whose class labels are stored differently, in one loader: the number of a label is that of its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps

NAMES = ["ant", "bee", "cat", "dog", "eel"]
MANY = st.lists(st.sampled_from(NAMES), min_size=1, max_size=12)


def labels_in(path: Path, names: list[str], form: str, listed: list[str]) -> ps.Dataset:
    """A dataset with these labels. `listed`: the class list of a source that stores numbers."""
    numbers = [listed.index(name) for name in names]
    ids = np.arange(len(names))
    if form == "numbers":
        ps.write({"label": numbers, "id": ids}, path.with_suffix(".tfrecord"), overwrite=True)
        table = str(listed).replace("'", '"')
        found = ps.open(path.with_suffix(".tfrecord"))
        return found.with_columns({"label": f"lookup(label, {table})"})
    values: Any = pa.array(names, pa.large_string())
    if form == "dictionary":
        values = pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int8()), pa.array(listed))
    ps.write(pa.table({"label": values, "id": ids}), path.with_suffix(".parquet"), overwrite=True)
    return ps.open(path.with_suffix(".parquet"))


FORMS = st.sampled_from(["numbers", "text", "dictionary"])
SOURCE = st.tuples(MANY, FORMS, st.permutations(NAMES))


@given(sources=st.lists(SOURCE, min_size=2, max_size=3), given_names=st.booleans())
def test_a_number_stands_for_the_same_name_in_all_sources(
    tmp_path_factory: pytest.TempPathFactory, sources: Any, given_names: bool
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    sets = [labels_in(folder / str(n), *source) for n, source in enumerate(sources)]
    has_labels = given_names or any(form == "dictionary" for _, form, _ in sources)
    options: dict[str, Any] = {"class_names": {"label": NAMES[::-1]}} if given_names else {}
    loader = ps.Loader(sets, 4, order=ps.Shuffled(seed=1), record_numbers="record", **options)
    wanted = [name for names, _, _ in sources for name in names]
    for batch in loader:
        found = batch["label"]
        known = loader.class_names["label"] if has_labels else None
        texts = found.tolist() if known is None else [known[number] for number in found]
        assert texts == [wanted[number] for number in batch["record"]]
    if given_names:
        assert loader.class_names == {"label": NAMES[::-1]}
    elif has_labels:
        # A dictionary has its own order, also of names that it does not use.
        lists = [listed if form == "dictionary" else names for names, form, listed in sources]
        every = dict.fromkeys(name for names in lists for name in names)
        assert loader.class_names == {"label": list(every)}


def test_a_mixture_has_one_label_space(tmp_path: Path) -> None:
    sets = {
        "a": labels_in(tmp_path / "a", ["cat", "dog"] * 10, "dictionary", ["dog", "cat"]),
        "b": labels_in(tmp_path / "b", ["eel", "cat"] * 10, "numbers", ["eel", "ant", "cat"]),
        "c": labels_in(tmp_path / "c", ["bee"] * 10, "text", ["bee"]),
    }
    order = ps.Mixture({"a": 0.4, "b": 0.4, "c": 0.2}, seed=0)
    loader = ps.Loader(sets, 50, order=order, class_names={"label": NAMES})
    (batch,) = loader
    assert np.bincount(batch["label"]).tolist() == [0, 10, 20, 10, 10]
    resumed = ps.Loader(sets, 50, order=order, class_names={"label": NAMES})
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(ps.StateError, match="class names"):
        ps.Loader(sets, 50, order=order).load_state_dict(loader.state_dict())


def test_a_label_without_a_name_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    ps.write({"label": [0, 1, 2]}, tmp_path / "a.tfrecord")
    ds = ps.open(tmp_path / "a.tfrecord").with_columns({"label": 'lookup(label, ["cat", "dog"])'})
    with pytest.raises(ps.SchemaError, match="no entry for 2, only for 0 to 1") as caught:
        list(ps.Loader(ds, 3))
    assert (caught.value.record, caught.value.field) == (2, "label")
    other = labels_in(tmp_path / "b", ["cat", "eel"], "dictionary", ["cat", "eel"])
    with pytest.raises(ps.SchemaError, match="'eel' is not one of the loader's 2 class names"):
        list(ps.Loader(other, 1, class_names={"label": ["cat", "dog"]}))


@pytest.mark.parametrize("form", ["int64", "bytes"])
def test_names_and_other_values_are_never_mixed(tmp_path: Path, form: str) -> None:
    values: list[Any] = [1, 0] if form == "int64" else [b"cat", b"dog"]
    ps.write({"label": values}, tmp_path / "a.tfrecord")
    sets = [
        labels_in(tmp_path / "b", ["cat", "dog"], "dictionary", ["dog", "cat"]),
        ps.open(tmp_path / "a.tfrecord"),
    ]
    for data in (sets, sets[::-1]):
        with pytest.raises(ps.SchemaError, match="different types") as caught:
            ps.Loader(data, 4, columns=["label"], class_names={"label": ["dog", "cat"]})
        assert (
            caught.value.hint and ("lookup" if form == "int64" else "types=") in caught.value.hint
        )
