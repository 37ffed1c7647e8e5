"""`convert` of some records: filtered, sampled, shuffled, in one pass and in any number of files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.conditions import parse

COUNT = 3000
RECORDS = pa.table(
    {
        "label": pa.array([n % 7 for n in range(COUNT)]),
        "name": pa.array([("cat", "dog", None)[n % 3] for n in range(COUNT)]),
        "score": pa.array([None if n % 5 == 0 else n / COUNT for n in range(COUNT)], pa.float32()),
        "of-file": pa.array(np.arange(COUNT)),
    }
)


@pytest.fixture
def source(tmp_path: Path) -> list[str]:
    ps.write(RECORDS, str(tmp_path / "in.parquet"), num_shards=3)
    return [str(tmp_path / f"in-{n:05d}-of-00003.parquet") for n in range(3)]


def converted(source: Any, tmp_path: Path, **options: Any) -> pa.Table:
    made = ps.convert(source, str(tmp_path / "out.arrow"), overwrite=True, prove=True, **options)
    found = pa.table(ps.open(list(made.paths)))
    assert made.num_records == found.num_rows
    return found


def test_a_condition_in_words_keeps_the_records_that_fulfil_it(
    source: list[str], tmp_path: Path
) -> None:
    rows = RECORDS.to_pylist()
    asked = {
        "label >= 3": lambda r: r["label"] >= 3,
        'name == "cat" and label != 0': lambda r: r["name"] == "cat" and r["label"] != 0,
        "name is null": lambda r: r["name"] is None,
        "score is not null and score < 0.25": lambda r: (
            r["score"] is not None and r["score"] < 0.25
        ),
        "label in [1, 2] and `of-file` > 100": lambda r: (
            r["label"] in (1, 2) and r["of-file"] > 100
        ),
        'name in ["dog"]': lambda r: r["name"] == "dog",
        "label > 100": lambda r: False,
    }
    for words, holds in asked.items():
        assert converted(source, tmp_path, where=words).to_pylist() == [
            row for row in rows if holds(row)
        ], words


@pytest.mark.parametrize("type_", [pa.int64(), pa.int8(), pa.uint64(), pa.float64()])
@pytest.mark.parametrize("value", [2**63, 2**64, -(2**63) - 1, 10**30, 200, -1, 3])
def test_numbers_beyond_the_range_of_a_field_are_compared_as_numbers(
    type_: pa.DataType, value: int, tmp_path: Path
) -> None:
    numbers = [1, 3, 100, None] if type_ != pa.uint64() else [1, 3, 2**64 - 1, None]
    path = tmp_path / "numbers.arrow"
    ps.write(pa.table({"x": pa.array(numbers, type_)}), path)
    asked = {
        "==": lambda x: x == value,
        "!=": lambda x: x != value,
        "<": lambda x: x < value,
        "<=": lambda x: x <= value,
        ">": lambda x: x > value,
        ">=": lambda x: x >= value,
    }
    for operator, holds in asked.items():
        found = converted(str(path), tmp_path, where=f"x {operator} {value}")["x"].to_pylist()
        assert found == [x for x in numbers if x is not None and holds(x)], operator
    found = converted(str(path), tmp_path, where=f"x in [3, {value}]")["x"].to_pylist()
    assert found == [3]


def test_a_number_that_nothing_can_be_compared_with_is_a_schema_error(tmp_path: Path) -> None:
    for column in ([1.5], ["a"], [True]):
        path = tmp_path / "a.arrow"
        ps.write({"x": column}, path, overwrite=True)
        with pytest.raises(ps.SchemaError, match="field 'x'"):
            converted(str(path), tmp_path, where=f"x > {10**400}")


def test_a_function_of_batches_filters_as_well(source: list[str], tmp_path: Path) -> None:
    given: set[tuple[str, ...]] = set()

    def even(batch: pa.RecordBatch) -> Any:
        given.add(tuple(batch.schema.names))
        return batch.column("of-file").to_numpy() % 2 == 0

    found = converted(source, tmp_path, where=even, reads=["of-file"], columns=["label"])
    assert found.column("label").to_pylist() == [n % 7 for n in range(0, COUNT, 2)]
    assert given == {("of-file",)}
    with pytest.raises(
        TypeError, match="not one boolean for each record; it is called with a record batch"
    ):
        converted(source, tmp_path, where=lambda batch: [1, 2])


def test_words_that_are_not_a_condition_name_what_is_allowed_there(
    source: list[str], tmp_path: Path
) -> None:
    for words, told in {
        "3": "expected a comparison",
        "label >= ": "expected a value",
        "label = 3": "expected `==`",
        "label in 3": "in takes a list",
        "label == [3]": "is not a single value",
        "label == 3 name is null": "expected an operator, an `and` or an `or`",
        "__import__('os')": "expected one of the functions",
    }.items():
        with pytest.raises(ValueError, match=told):
            parse(words)
    with pytest.raises(ps.SchemaError, match="no such column"):
        converted(source, tmp_path, where="nothing == 3")
    with pytest.raises(ps.SchemaError, match="cannot be compared"):
        converted(source, tmp_path, where='label == "three"')
    with pytest.raises(ps.SchemaError, match="not booleans"):
        converted(source, tmp_path, where="label")


def test_a_sample_is_drawn_without_repeats_in_the_order_of_the_files(
    source: list[str], tmp_path: Path
) -> None:
    drawn = [
        converted(source, tmp_path, sample=sample, seed=seed).column("of-file").to_pylist()
        for sample, seed in ((0.1, 0), (300, 0), (0.1, 1), (COUNT, 0), (1.0, 0))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[2]) == 300
    for numbers in drawn:
        assert numbers == sorted(set(numbers))
    assert drawn[3] == drawn[4] == list(range(COUNT))
    for wrong in (0, 1.5, -1, COUNT + 1, True):
        with pytest.raises(ValueError, match="sample="):
            converted(source, tmp_path, sample=wrong)


def test_filter_sample_and_shuffle_go_together_and_into_shards(
    source: list[str], tmp_path: Path
) -> None:
    how = {"where": "label == 2", "sample": 0.5, "shuffle": 5}
    whole = converted(source, tmp_path, **how)
    numbers = whole.column("of-file").to_pylist()
    assert len(numbers) == round(len(range(2, COUNT, 7)) * 0.5)
    assert numbers != sorted(numbers)
    assert set(numbers) <= set(range(2, COUNT, 7))
    for threads in (1, 3):
        cut = converted(source, tmp_path, **how, num_shards=4, threads=threads)
        assert cut.equals(whole)


def test_a_folder_keeps_each_file_s_records_with_it(source: list[str], tmp_path: Path) -> None:
    made = ps.convert(
        source,
        str(tmp_path / "some") + "/",
        format="arrow",
        where="label == 0 and `of-file` < 1500",
    )
    found = [ps.open(path) for path in made.paths]
    assert [len(ds) for ds in found] == [143, 72, 0]
    assert [value for ds in found for value in pa.table(ds).column("of-file").to_pylist()] == list(
        range(0, 1500, 7)
    )


def test_the_rest_is_what_the_sample_leaves_out(source: list[str], tmp_path: Path) -> None:
    for how in ({"seed": 3}, {"seed": 4}, {"where": "label == 2"}):
        parts = [
            converted(source, tmp_path, **{option: 0.3}, **how).column("of-file").to_pylist()
            for option in ("sample", "sample_rest")
        ]
        whole = converted(source, tmp_path, **{k: v for k, v in how.items() if k == "where"})
        assert sorted(parts[0] + parts[1]) == whole.column("of-file").to_pylist()
        assert parts[1] == sorted(parts[1])
    for wrong in ({"sample_rest": 1.5}, {"sample": 0.1, "sample_rest": 0.1}):
        with pytest.raises(ValueError, match="sample_rest="):
            converted(source, tmp_path, **wrong)


def test_a_shuffle_has_the_order_of_shuffled(source: list[str], tmp_path: Path) -> None:
    found = converted(source, tmp_path, shuffle=5).column("of-file").to_pylist()
    assert found == ps.Shuffled(5).take(COUNT, 0, 0, COUNT).tolist()


def test_files_finished_for_one_view_are_not_used_for_another(
    source: list[str], tmp_path: Path
) -> None:
    ds = ps.open(source)
    target = tmp_path / "out.arrow"

    class Stopped(BaseException):
        """Raised to end the job after its first file."""

    def stop(done: int, *_: int) -> None:
        if done > 215:
            raise Stopped

    with pytest.raises(Stopped):
        ps.convert(ds.filter("label == 1"), target, num_shards=2, progress=stop, threads=1)
    assert any("part" in path.name for path in tmp_path.iterdir())
    made = ps.convert(ds.filter("label == 2"), target, num_shards=2)
    assert set(pa.table(ps.open(list(made.paths))).column("label").to_pylist()) == {2}
