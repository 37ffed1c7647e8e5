"""`ps.stats`: exact, the same for any batch size and number of threads, and right for extreme numbers."""

from __future__ import annotations

import json
import math
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from running import run

import penstock as ps
from penstock.verbs.inspect.observe import FieldObserver
from penstock.verbs.inspect.tally import BINS, DISTINCT_LIMIT, Range


def stats_of(tmp_path: Path, **columns: object) -> ps.Stats:
    path = tmp_path / "data.parquet"
    ps.write(pa.table(columns), path, overwrite=True)
    return ps.stats(path)


def test_stats_say_that_later_records_may_have_other_fields(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"id": range(1500), "late": [None] * 1499 + [7]}, path, index=False)
    with pytest.warns(UserWarning, match="record 1499 has the field 'late'"):
        found = ps.stats(path)
    assert [field.name for field in found.fields] == ["id"]
    assert found.fields_from == "the first 1000 records of a.tfrecord"
    assert "the fields of the first 1000 records" in run("stats", path).out
    assert "the fields of" not in run("stats", path, "--columns", "id").out
    whole = ps.stats(ps.open(path, infer_records="all"))
    assert [field.name for field in whole.fields] == ["id", "late"]
    assert whole.fields_from is None
    ps.write({"id": [1]}, tmp_path / "b.tfrecord")
    assert ps.stats(tmp_path / "b.tfrecord").fields_from is None
    ps.write({"id": [1]}, tmp_path / "b.parquet")
    assert ps.stats(tmp_path / "b.parquet").fields_from is None


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.one_of(st.lists(FLOATS, min_size=1), st.lists(INTEGERS, min_size=1)), st.data())
def test_a_histogram_does_not_depend_on_the_order_or_the_parts(
    numbers: list[float], data: st.DataObject
) -> None:
    kind = np.int64 if isinstance(numbers[0], int) else np.float64
    whole, parts = Range(), Range()
    whole.add(np.array(numbers, kind))
    left = data.draw(st.permutations(numbers))
    while left:
        size = data.draw(st.integers(1, len(left)))
        part = Range()
        part.add(np.array(left[:size], kind))
        parts.merge(part)
        left = left[size:]
    assert parts.bins.histogram("values") == whole.bins.histogram("values")
    found = whole.bins.histogram("values")
    if found is not None:
        assert len(found.counts) <= BINS
        assert sum(found.counts) == len(numbers)
        assert found.counts[0]
        assert found.counts[-1]
        assert found.start <= min(numbers)
        assert max(numbers) <= found.start + found.bin_width * len(found.counts)
    spread = whole.spread()
    assert spread is not None
    assert (spread.min, spread.max) == (min(numbers), max(numbers))


def test_the_mean_of_extreme_integers_is_exact() -> None:
    top = (1 << 63) - 1
    numbers = Range()
    for _ in range(3):
        numbers.add(np.full(1000, top))
    numbers.add(np.full(3000, -top))
    spread = numbers.spread()
    assert spread is not None
    assert spread.mean == 0


def test_nulls_nan_and_infinities_are_counted_separately(tmp_path: Path) -> None:
    values = pa.array([1.0, None, math.nan, math.inf, -math.inf, 3.0])
    field = stats_of(tmp_path, x=values)["x"]
    assert (field.num_entries, field.num_null, field.num_nan, field.num_infinite) == (6, 1, 1, 2)
    assert field.values == ps.Spread(2, 1.0, 2.0, 3.0)


def test_stats_of_lists_have_lengths_and_inner_values(tmp_path: Path) -> None:
    field = stats_of(tmp_path, x=pa.array([[[1], [2, 3]], None, []]))["x"]
    assert field.lengths == ps.Spread(2, 0, 1.0, 2)
    assert field.values == ps.Spread(3, 1, 2.0, 3)
    assert field.num_null == 1


def test_children_of_structs_are_separate_fields(tmp_path: Path) -> None:
    found = stats_of(tmp_path, s=pa.array([{"a": 1, "b": "x"}, None, {"a": 3, "b": None}]))
    assert [field.name for field in found.fields] == ["s", "s.a", "s.b"]
    assert found["s"].num_null == 1
    assert found["s.b"].num_null == 2
    assert found["s.a"].values == ps.Spread(2, 1, 2.0, 3)


def test_times_have_a_range_and_no_mean(tmp_path: Path) -> None:
    moments = [datetime.fromisoformat("2020-01-01"), datetime.fromisoformat("2021-06-01")]
    field = stats_of(tmp_path, t=pa.array(moments, pa.timestamp("us")))["t"]
    assert field.values == ps.Spread(2, moments[0], None, moments[1])


@pytest.mark.parametrize(
    "type_", [pa.bool_(), pa.uint64(), pa.int8(), pa.float16(), pa.decimal128(5, 2)]
)
def test_every_kind_of_number_has_a_range(tmp_path: Path, type_: pa.DataType) -> None:
    array = (
        pa.array([0, 1], pa.int8()).cast(type_)
        if type_ != pa.float16()
        else pa.array(np.array([0, 1], np.float16))
    )
    field = stats_of(tmp_path, x=array)["x"]
    assert field.values is not None
    assert (field.values.min, field.values.max) == (0, 1)


def test_uint64_beyond_int64_has_a_range(tmp_path: Path) -> None:
    field = stats_of(tmp_path, x=pa.array([0, (1 << 64) - 1], pa.uint64()))["x"]
    assert field.values is not None
    assert field.values.max == (1 << 64) - 1


@given(st.lists(st.lists(st.integers(0, (1 << 64) - 1), max_size=6), min_size=1, max_size=4))
def test_figures_of_uint64_are_exact(batches: list[list[int]]) -> None:
    numbers = [number for batch in batches for number in batch]
    observer = FieldObserver("x", pa.uint64())
    for batch in batches:
        observer.add(observer.look(pa.array(batch, pa.uint64())))
    seen = next(observer.results())[2]
    if numbers:
        mean = sum(numbers) / len(numbers)
        assert seen.values.spread() == ps.Spread(len(numbers), min(numbers), mean, max(numbers))
    if histogram := seen.histogram():
        assert sum(histogram.counts) == len(numbers)
        bins = [(n - histogram.start) // histogram.bin_width for n in numbers]
        assert [bins.count(place) for place in range(len(histogram.counts))] == [*histogram.counts]


def test_figures_of_decimals_are_exact(tmp_path: Path) -> None:
    exact = [Decimal(10**30 + n) for n in range(5)]
    prices = [Decimal(text) for text in ("9999.99", "0.29", "-0.30", "7077.40", "1.00")]
    data = {
        "w": pa.array(exact, pa.decimal128(38, 0)),
        "p": pa.array(prices, pa.decimal128(12, 2)),
        "x": pa.array([Decimal(9) * 10**75] * 5, pa.decimal256(76, 0)),
    }
    found = stats_of(tmp_path, **data)
    assert found["w"].values == ps.Spread(5, exact[0], float(exact[2]), exact[4])
    assert found["p"].values == ps.Spread(
        5, Decimal("-0.30"), float(sum(prices) / 5), Decimal("9999.99")
    )
    assert found["x"].values == ps.Spread(5, data["x"][0].as_py(), 9e75, data["x"][0].as_py())
    done = run("stats", tmp_path / "data.parquet")
    assert "-0.30 … 9,999.99, mean 3,415.7" in done.out
    assert "000,000,004" in done.out.replace("\n", "")


def test_a_condition_may_read_a_field_that_is_not_summarised(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ps.write({"i": [1, 3, 3], "x": [1.0, 2.0, 3.0]}, path)
    done = run("stats", "--where", "i == 3", "--columns", "x", "--json", path)
    fields = json.loads(done.out)["fields"]
    assert [(field["name"], field["values"]["min"]) for field in fields] == [("x", 2.0)]
    done = run("stats", "--where", "i == 3", "--columns", "nope", path)
    assert (done.status, "nope" in done.err) == (2, True)


def test_distinct_values_are_counted_up_to_a_limit(tmp_path: Path) -> None:
    found = stats_of(
        tmp_path,
        few=pa.array([n % 3 for n in range(10_000)]),
        edge=pa.array([n % DISTINCT_LIMIT for n in range(10_000)]),
        many=pa.array(range(10_000)),
        long=pa.array(["x" * 300] * 10_000),
    )
    assert found["few"].num_distinct == 3
    assert not found["few"].has_more_distinct
    assert found["few"].most_common[0] == (0, 3334)
    assert found["edge"].num_distinct == DISTINCT_LIMIT
    assert not found["edge"].has_more_distinct
    assert found["many"].num_distinct == DISTINCT_LIMIT
    assert found["many"].has_more_distinct
    assert found["long"].num_distinct is None


def test_text_is_distinguished_from_bytes(tmp_path: Path) -> None:
    found = stats_of(
        tmp_path,
        text=pa.array([b"caf\xc3\xa9", b"x"]),
        mixed=pa.array([b"text", b"\xff\xfe"]),
        view=pa.array([b"a longer value than a view holds", None], pa.binary_view()),
    )
    assert found["text"].is_text
    assert found["view"].is_text
    assert not found["mixed"].is_text
    assert found["view"].sizes == ps.Spread(1, 32, 32.0, 32)
    assert found["view"].num_null == 1


def test_images_are_described_by_kind_and_size(tmp_path: Path) -> None:
    gif = [b"GIF89a" + bytes([side, 0, 2 * side, 0]) for side in (10, 20)]
    (images,) = stats_of(tmp_path, image=pa.array([*gif, b"no image", None]))["image"].images
    assert images.kind == "GIF"
    assert images.width == ps.Spread(2, 10, 15.0, 20)
    assert images.height == ps.Spread(2, 20, 30.0, 40)


def test_stats_do_not_depend_on_threads_or_shards(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.normal(size=20_000).astype("f4"), "n": rng.integers(0, 9, 20_000)})
    ps.write(table, tmp_path / "a.tfrecord", num_shards=5)
    pattern = str(tmp_path / "a-*.tfrecord")
    assert ps.stats(pattern, threads=1) == ps.stats(pattern, threads=4)


def test_empty_data_has_stats(tmp_path: Path) -> None:
    found = stats_of(tmp_path, x=pa.array([], pa.int64()), s=pa.array([], pa.string()))
    assert found.num_records == 0
    assert found["x"].values is None
    assert found["x"].num_distinct is None
    assert found["x"].histogram is None


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    ps.write({"x": list(range(1000))}, tmp_path / "a.tfrecord")
    seen: list[tuple[int, int, int]] = []
    ps.stats(tmp_path / "a.tfrecord", progress=lambda *figures: seen.append(figures))
    size = (tmp_path / "a.tfrecord").stat().st_size
    assert seen[-1] == (1000, size, size)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "b", None]).dictionary_encode(),
        pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)),
        pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        pa.array([None, None]),
        pa.array([b"abc", None], pa.binary(3)),
        pa.array([["a"], []], pa.large_list(pa.large_string())),
        pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
        pa.array([1, None], pa.duration("s")),
        pa.array([["x" * 20, None], None], pa.list_(pa.string_view())),
    ],
)
def test_any_arrow_type_has_stats(array: pa.Array) -> None:
    observer = FieldObserver("x", array.type)
    observer.add(observer.look(array))
    observer.add(observer.look(array.slice(1)))
    _, type_, seen = next(observer.results())
    assert type_ == array.type
    assert seen.num_entries == 2 * len(array) - 1


def test_the_largest_numbers_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "u.parquet"
    ps.write(pa.table({"h": pa.array([2**63] * 3 + [1], pa.uint64())}), path)
    done = run("stats", path)
    assert done.status == 0
    assert "2 distinct: 922337203685477… (75 %), 1 (25 %)" in done.out
    assert run("stats", "--json", path).status == 0
