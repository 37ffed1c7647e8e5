"""`ps.diff`: finds exactly what differs, by content, across formats, in bounded memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import frames
import penstock as ps
from penstock.framing.index import kept_schema, sidecar
from penstock.payloads.example.plans import DecodePlan
from penstock.storage.local import LocalStorage
from reading import index_of, run_python
from strategies import batches


def fields_of(found: ps.Diff) -> dict[str, ps.FieldDiff]:
    return {field.name: field for field in found.fields}


def written(folder: Path, name: str, data: Any) -> Path:
    path = folder / name
    ps.write(data, path, overwrite=True)
    return path


TABLE = pa.table(
    {
        "id": range(3000),
        "name": [f"record {n}" for n in range(3000)],
        "score": pa.array([None if n % 7 == 0 else n / 2 for n in range(3000)], pa.float32()),
        "tokens": [list(range(n % 4)) for n in range(3000)],
        "box": pa.array([[n, n + 1] for n in range(3000)], pa.list_(pa.int32(), 2)),
        "inner": [{"x": n, "y": None if n % 2 else "y"} for n in range(3000)],
    }
)
FILES = ("a.tfrecord", "a.tfrecord.gz", "a.parquet", "a.arrow")


# -- datasets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", FILES)
@pytest.mark.parametrize("right", FILES)
def test_the_same_rows_are_equal_in_all_formats(left: str, right: str, tmp_path: Path) -> None:
    a, b = written(tmp_path, f"1{left}", TABLE), written(tmp_path, f"2{right}", TABLE)
    found = ps.diff(a, b)
    assert found.equal
    assert found.fields == ()
    assert found.records == ps.RecordsDiff(3000, 3000, 3000, 0, None, 0, 0)


@pytest.mark.parametrize("right", FILES)
def test_the_same_rows_are_equal_without_the_schema_kept(right: str, tmp_path: Path) -> None:
    a, b = tmp_path / "bare.tfrecord", written(tmp_path, f"2{right}", TABLE)
    ps.write(TABLE, a, index=False)
    assert ps.diff(a, b).fields == ps.diff(b, a).fields == ()
    assert ps.diff(a, b).records == ps.RecordsDiff(3000, 3000, 3000, 0, None, 0, 0)


@pytest.mark.parametrize("left", FILES)
@pytest.mark.parametrize("right", FILES)
@pytest.mark.parametrize("threads", [1, 3])
def test_edits_are_found_in_all_formats(
    left: str, right: str, threads: int, tmp_path: Path
) -> None:
    a = written(tmp_path, f"1{left}", TABLE)
    rows = TABLE.to_pylist()
    rows[2000]["id"] = -1
    rows[2500]["tokens"] = [7, 8]
    rows[2500]["score"] = None
    changed = pa.Table.from_pylist(rows, schema=TABLE.schema)
    late = pa.array([1 if n == 2999 else None for n in range(3000)])
    b = written(tmp_path, f"2{right}", changed.append_column("late", late))
    found = ps.diff(a, b, threads=threads)
    assert found.records == ps.RecordsDiff(3000, 3000, 3000, 3, 2000, 0, 0)
    fields = fields_of(found)
    assert {name: (f.kind, f.num_records) for name, f in fields.items()} == {
        "id": ("values", 1),
        "tokens": ("values", 1),
        "score": ("values", 1),
        "late": ("only in b", 1),
    }
    assert fields["id"].examples == (ps.ValueDiff(2000, 2000, "2000", "-1"),)
    assert fields["tokens"].examples[0].place == 0
    assert (fields["score"].num_only_in_a, fields["score"].num_only_in_b) == (1, 0)
    assert (fields["late"].num_only_in_a, fields["late"].num_only_in_b) == (0, 1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(batches(max_records=12), st.data())
def test_random_edits_are_found_exactly(
    tmp_path: Path, batch: pa.RecordBatch, data: st.DataObject
) -> None:
    other = data.draw(batches(batch.num_rows, batch.num_rows))
    names = [name for name in batch.schema.names if name not in other.schema.names]
    rows = batch.to_pylist()
    wanted: dict[str, set[int]] = {}
    for name in data.draw(st.lists(st.sampled_from(names), unique=True)) if names else []:
        type_ = batch.schema.field(name).type
        for row in data.draw(st.sets(st.integers(0, batch.num_rows - 1))):
            old = rows[row][name]
            rows[row][name] = edited(old, type_)
            wanted.setdefault(name, set()).add(row)
    edited_batch = pa.RecordBatch.from_pylist(rows, schema=batch.schema)
    formats = data.draw(st.tuples(*[st.sampled_from(["tfrecord", "parquet", "arrow"])] * 2))
    a = written(tmp_path, f"a.{formats[0]}", pa.Table.from_batches([batch]))
    b = written(tmp_path, f"b.{formats[1]}", pa.Table.from_batches([edited_batch]))
    found = ps.diff(a, b)
    counts = {f.name: f.num_records for f in found.fields if f.num_records}
    assert counts == {name: len(places) for name, places in wanted.items()}
    places = sorted(set().union(*wanted.values()))
    assert found.records.num_differ == len(places)
    assert found.records.first_differ == (places[0] if places else None)
    assert found.equal is (not places)
    for field in found.fields:
        shown = [example.record_a for example in field.examples]
        assert shown == sorted(wanted.get(field.name, ()))[:3]


def edited(value: Any, type_: pa.DataType) -> Any:
    """Another value of the type."""
    if pa.types.is_list(type_):
        inner = {"int64": 0, "float": 0.5, "binary": b"x"}[str(type_.value_type)]
        return [*(value or []), inner]
    if isinstance(value, bytes):
        return value + b"x"
    if pa.types.is_integer(type_):
        return 0 if value else 1  # pyarrow would make 0 of 0.5
    return 0.5 if value != 0.5 else 1.5 if isinstance(value, float) else value


def test_a_longer_tail_is_counted(tmp_path: Path) -> None:
    a, b = written(tmp_path, "a.tfrecord", TABLE), written(tmp_path, "b.arrow", TABLE[:2900])
    assert ps.diff(a, b).records == ps.RecordsDiff(3000, 2900, 2900, 0, None, 100, 0)
    assert ps.diff(b, a).records == ps.RecordsDiff(2900, 3000, 2900, 0, None, 0, 100)
    assert not ps.diff(a, b).equal


def test_nothing_equals_nothing(tmp_path: Path) -> None:
    empty = tmp_path / "empty.tfrecord"
    empty.write_bytes(b"")
    assert ps.diff(empty, empty).equal
    one = written(tmp_path, "one.parquet", {"id": [1]})
    assert ps.diff(empty, one).records.num_only_in_b == 1


def test_shards_do_not_matter(tmp_path: Path) -> None:
    a = written(tmp_path, "a.tfrecord", TABLE)
    ps.write(TABLE, tmp_path / "s.tfrecord", num_shards=7)
    assert ps.diff(a, f"{tmp_path}/s-*.tfrecord").equal


def test_fields_beyond_the_sample_are_seen(tmp_path: Path) -> None:
    """The first thousand records give the schema, but a field of the last record counts, too."""
    examples = [frames.example({"id": [n]}) for n in range(3000)]
    more = [*examples[:-1], frames.example({"id": [2999], "late": [b"x"]})]
    a, b = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    for path, payloads in ((a, examples), (b, more)):
        path.write_bytes(b"".join(frames.frame(payload) for payload in payloads))
    (field,) = ps.diff(a, b).fields
    assert (field.name, field.kind, field.num_records) == ("late", "only in b", 1)
    rows = written(tmp_path, "a.parquet", {"id": range(3000)})
    (field,) = ps.diff(rows, b).fields
    assert (field.name, field.kind, field.type_b) == ("late", "only in b", pa.binary())


def test_a_field_in_equal_payloads_is_not_reported_missing(tmp_path: Path) -> None:
    late = [frames.example({"id": [n], "late": [n]}) for n in range(2000, 2003)]
    examples = [*(frames.example({"id": [n]}) for n in range(2000)), *late]
    changed = [*examples[:-1], frames.example({"id": [2002]})]
    a, b = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    for path, payloads in ((a, examples), (b, changed)):
        path.write_bytes(b"".join(frames.frame(payload) for payload in payloads))
    (field,) = ps.diff(a, b).fields
    assert (field.name, field.kind) == ("late", "values")
    assert (field.num_only_in_a, field.num_only_in_b) == (1, 0)


def test_the_order_of_features_is_not_content(tmp_path: Path) -> None:
    a, b = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    entries = [b"\n\n\n\x01" + key + b"\x12\x05\x1a\x03\n\x01\x01" for key in (b"a", b"b")]
    a.write_bytes(frames.frame(b"\n\x18" + entries[0] + entries[1]))
    b.write_bytes(frames.frame(b"\n\x18" + entries[1] + entries[0]))
    assert list(ps.open(a)) == [{"a": 1, "b": 1}]
    assert a.read_bytes() != b.read_bytes()
    assert ps.diff(a, b).equal


def test_equal_payloads_of_one_kept_schema_are_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = written(tmp_path, "a.tfrecord", TABLE), written(tmp_path, "b.tfrecord.gz", TABLE)
    parsed: list[int] = []
    real = DecodePlan.decode

    def counted(plan: DecodePlan, frames: Any, *rest: Any) -> pa.RecordBatch:
        parsed.append(len(frames))
        return real(plan, frames, *rest)

    monkeypatch.setattr(DecodePlan, "decode", counted)
    assert ps.diff(a, b).equal and not parsed
    ids = pa.array([-1 if n == 1500 else n for n in range(3000)])
    c = written(tmp_path, "c.tfrecord", TABLE.set_column(0, "id", ids))
    found = ps.diff(a, c)
    assert parsed == [1, 1] and found.records.num_differ == 1
    assert [(f.name, f.type_a, f.num_records) for f in found.fields] == [("id", pa.int64(), 1)]
    assert ps.diff(a, c, columns=["name", "inner"]).equal
    parsed.clear()
    found = ps.diff(a, c, by="name")
    assert [f.name for f in found.fields] == ["id"] and parsed == [
        3000,
        3000,
        1,
        1,
    ]  # the keys, then what differs
    few = written(
        tmp_path, "d.tfrecord", TABLE.cast(TABLE.schema.set(0, pa.field("id", pa.int16())))
    )
    assert ps.diff(a, few).equal and sum(parsed) >= 2 * 3000


def test_a_value_that_does_not_fit_the_kept_schema_is_the_usual_error(tmp_path: Path) -> None:
    paths = [written(tmp_path, f"{n}.tfrecord", {"id": [1, n]}) for n in (300, 400)]
    for path in paths:
        kept = sidecar.load(str(index_of(path)), LocalStorage())
        schema = kept_schema.to_bytes(pa.schema([("id", pa.int8())]))
        sidecar.save(replace(kept, schema=schema), str(path), LocalStorage())
    with pytest.raises(ps.SchemaError) as caught:
        ps.diff(*paths)
    assert (caught.value.file, caught.value.field) == (str(paths[0]), "id")
    assert caught.value.record == 1


def test_int_and_float_differ_in_type(tmp_path: Path) -> None:
    a = written(tmp_path, "a.tfrecord", {"x": [1, 2], "same": [1, 2]})
    b = written(tmp_path, "b.tfrecord", {"x": [1.0, 2.0], "same": [1, 2]})
    (field,) = ps.diff(a, b).fields
    assert (field.kind, field.type_a, field.type_b) == ("type", pa.int64(), pa.float32())
    assert field.num_records == 2


def test_feature_lists_equal_lists_of_lists(tmp_path: Path) -> None:
    data = pa.table({"id": [1, 2], "frames": [[[1, 2], []], [[3]]]})
    a, b = written(tmp_path, "a.tfrecord", data), written(tmp_path, "b.parquet", data)
    assert ps.diff(a, b).equal
    other = pa.table({"id": [1, 2], "frames": [[[1, 2], []], [[4]]]})
    found = ps.diff(a, written(tmp_path, "c.parquet", other))
    assert [(f.name, f.num_records) for f in found.fields] == [("frames", 1)]


def test_tensors_equal_the_features_they_are_stored_as(tmp_path: Path) -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(24).reshape(4, 2, 3))
    data = pa.table({"t": tensors})
    a, b = written(tmp_path, "a.tfrecord", data), written(tmp_path, "b.arrow", data)
    assert ps.diff(a, b).equal
    nested = pa.table({"t": np.arange(24).reshape(4, 2, 3).tolist()})
    assert ps.diff(b, written(tmp_path, "c.parquet", nested)).equal


def test_only_the_columns_asked_for_are_compared(tmp_path: Path) -> None:
    a = written(tmp_path, "a.tfrecord", {"id": [1], "x": [1]})
    b = written(tmp_path, "b.tfrecord", {"id": [1], "x": [2]})
    assert ps.diff(a, b, columns=["id"]).equal
    assert ps.diff(ps.open(a, columns=["id"]), ps.open(b, columns=["id"])).equal
    assert not ps.diff(a, b).equal
    with pytest.raises(ps.SchemaError, match="no such column"):
        ps.diff(a, b, columns=["nonsense"])


def test_raw_records_are_compared_as_bytes(tmp_path: Path) -> None:
    a, b = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    a.write_bytes(frames.frame(b"\xffone") + frames.frame(b"\xffa longer payload"))
    b.write_bytes(frames.frame(b"\xffone") + frames.frame(b"\xffa longer payloaD"))
    (field,) = ps.diff(a, b).fields
    assert (field.name, field.num_records, field.examples[0].place) == ("record", 1, 16)


def test_damage_is_the_usual_error(tmp_path: Path) -> None:
    a = written(tmp_path, "a.tfrecord", TABLE)
    data = bytearray(a.read_bytes())
    data[len(data) // 2] ^= 1
    b = tmp_path / "b.tfrecord"
    b.write_bytes(data)
    with pytest.raises(ps.ChecksumError) as raised:
        ps.diff(a, b)
    assert raised.value.file == str(b)
    assert raised.value.record is not None
    skipping = ps.open(b, damage="skip")
    found = ps.diff(a, skipping)
    assert found.records.num_b == 2999
    assert found.records.first_differ == raised.value.record
    assert len(skipping.damage) == 1


def test_a_record_that_is_not_an_example_is_the_usual_error(tmp_path: Path) -> None:
    good = [frames.frame(frames.example({"id": [n]})) for n in range(3000)]
    a, b = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    a.write_bytes(b"".join(good))
    b.write_bytes(b"".join([*good[:2500], frames.frame(b"\xff\xff"), *good[2501:]]))
    with pytest.raises(ps.PenstockError) as raised:
        ps.diff(a, b)
    with pytest.raises(ps.PenstockError) as usual:
        ps.open(b)[2500]
    assert str(raised.value) == str(usual.value)
    assert raised.value.record == 2500


def test_values_in_the_outcome_are_short(tmp_path: Path) -> None:
    a = written(tmp_path, "a.parquet", {"x": [b"\xff" * 1_000_000]})
    b = written(tmp_path, "b.parquet", {"x": [b"\xff" * 999_999 + b"\xfe"]})
    (example,) = ps.diff(a, b).fields[0].examples
    assert example.place == 999_999
    assert max(len(example.a), len(example.b)) <= 60
    assert "x" in str(ps.diff(a, b))


def test_progress_ends_with_everything(tmp_path: Path) -> None:
    a = written(tmp_path, "a.tfrecord", TABLE)
    told: list[tuple[int, int, int]] = []
    ps.diff(a, a, progress=lambda *facts: told.append(facts))
    assert told[-1] == (3000, 2 * a.stat().st_size, 2 * a.stat().st_size)


# -- by a key -------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["tfrecord", "parquet"])
def test_records_are_matched_by_a_key_in_any_order(suffix: str, tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(3000)
    a = written(tmp_path, "a.tfrecord", TABLE)
    b = written(tmp_path, f"b.{suffix}", TABLE.take(pa.array(order)))
    assert not ps.diff(a, b).equal
    assert ps.diff(a, b, by="id").equal
    assert ps.diff(a, b, by="name").equal
    rows = TABLE.to_pylist()
    rows[1234]["score"] = 0.25
    rows[5]["id"] = 9999
    changed = pa.Table.from_pylist([*rows, rows[7]], schema=TABLE.schema)
    c = written(tmp_path, f"c.{suffix}", changed.take(pa.array([*order, 3000])))
    found = ps.diff(a, c, by="id")
    (field,) = found.fields
    assert (field.name, field.examples[0].record_a) == ("score", 1234)
    assert field.examples[0].record_b == order.tolist().index(1234)
    assert found.records == ps.RecordsDiff(
        3000, 3001, 2999, 1, 1234, 1, 1, 0, 1, ("5",), ("9999",), (), ("7",)
    )
    assert not ps.diff(a, a, by="id").records.num_repeated_a


def test_an_invalid_key_is_refused(tmp_path: Path) -> None:
    a = written(tmp_path, "a.parquet", TABLE)
    with pytest.raises(ps.SchemaError, match="cannot be a key"):
        ps.diff(a, a, by="tokens")
    with pytest.raises(ps.SchemaError, match="no such field"):
        ps.diff(a, a, by="nonsense")


# -- memory ---------------------------------------------------------------------------------------

COMPARE = """
import resource, sys
import penstock as ps
import numpy, pyarrow
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = rss()
found = ps.diff(sys.argv[1], sys.argv[2], threads=4)
print(found.records.num_differ, round(rss() - before))
"""


def test_comparing_grows_by_less_than_300_mib(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).bytes(16_000)
    piece = [frames.frame(frames.example({"id": [n], "blob": [noise]})) for n in range(64)]
    other = [*piece[:-1], frames.frame(frames.example({"id": [-1], "blob": [noise]}))]
    a, b = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    for path, frame in ((a, piece), (b, other)):
        with path.open("wb") as file:
            file.writelines(b"".join(frame) for _ in range(500))
    differ, grown = (int(word) for word in run_python(COMPARE, str(a), str(b)).split())
    assert differ == 500
    assert grown < 300, f"{grown} MiB"
