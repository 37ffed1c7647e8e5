"""Conversion keeps every value, divides records into shards as requested, and after a kill continues with the same
bytes."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import penstock as ps
from penstock.columns.types import VariableShapeTensorType
from reading import index_of


def table_of(count: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    floats = rng.random(count, dtype=np.float32)
    floats[::7] = np.nan
    floats[1::7] = -0.0
    return pa.table(
        {
            "id": pa.array(np.arange(count)),
            "score": pa.array(floats, mask=rng.random(count) < 0.1, from_pandas=False),
            "name": pa.array([bytes([i % 256]) * (i % 50) for i in range(count)], pa.binary()),
            "tags": pa.array(
                [None if i % 11 == 0 else list(range(i % 5)) for i in range(count)],
                pa.list_(pa.int64()),
            ),
        }
    )


def same_bits(a: pa.Table, b: pa.Table) -> bool:
    from penstock.verbs.convert.proof import same

    return all(same(a[name].combine_chunks(), b[name].combine_chunks()) for name in a.column_names)


def whole(path: object, **options: object) -> pa.Table:
    ds = ps.open(path if isinstance(path, list) else str(path), index="never", **options)
    return pa.Table.from_batches(ds.scan(), schema=ds.schema)


def test_parquet_to_tfrecord_and_back_gives_equal_values(tmp_path: Path) -> None:
    table = table_of(5000)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=700)
    for compression in (None, "gzip", "zlib"):
        target = str(tmp_path / f"b-{compression}.tfrecord")
        made = ps.convert(str(tmp_path / "a.parquet"), target, compression=compression, prove=True)
        assert made.num_records == 5000
        assert made.paths == (target,)
        back = tmp_path / f"c-{compression}.parquet"
        # A schema can distinguish an empty list from a missing list.
        ps.convert(ps.open(target, schema=table.schema), str(back), prove=True)
        assert same_bits(table, pq.read_table(back))
    assert os.path.exists(index_of(tmp_path / "b-gzip.tfrecord"))


def test_arrow_is_converted_either_way(tmp_path: Path) -> None:
    table = table_of(3000)
    feather.write_feather(table, tmp_path / "a.arrow", compression="zstd")
    ps.convert(str(tmp_path / "a.arrow"), str(tmp_path / "b.parquet"), prove=True)
    ps.convert(str(tmp_path / "b.parquet"), str(tmp_path / "c.tfrecord"), prove=True)
    ps.convert(str(tmp_path / "c.tfrecord"), str(tmp_path / "d.arrow"), prove=True)
    assert same_bits(table, whole(tmp_path / "b.parquet"))
    assert same_bits(table.select(["id", "score", "name"]), whole(tmp_path / "d.arrow"))


def test_tfrecord_payloads_are_copied_as_they_are(tmp_path: Path) -> None:
    payloads = [os.urandom(n % 300) for n in range(2000)]
    batch = pa.record_batch({"record": pa.array(payloads, pa.binary())})
    ps.write(batch, str(tmp_path / "a.tfrecord"))
    ps.convert(str(tmp_path / "a.tfrecord"), str(tmp_path / "b.tfrecord.gz"), prove=True)
    plain = gzip.decompress((tmp_path / "b.tfrecord.gz").read_bytes())
    assert plain == (tmp_path / "a.tfrecord").read_bytes()
    ps.convert(str(tmp_path / "b.tfrecord.gz"), str(tmp_path / "c.tfrecord"))
    assert (tmp_path / "c.tfrecord").read_bytes() == plain


def test_shards_are_divided_as_write_divides_them(tmp_path: Path) -> None:
    table = table_of(1003)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    for cuts in ({"num_shards": 4}, {"shard_records": 300}, {"shard_bytes": 20000}):
        ps.write(table, str(tmp_path / "w.tfrecord"), overwrite=True, **cuts)
        ps.convert(
            str(tmp_path / "a.parquet"), str(tmp_path / "c.tfrecord"), overwrite=True, **cuts
        )
        wrote = sorted(tmp_path.glob("w-*.tfrecord"))
        made = sorted(tmp_path.glob("c-*.tfrecord"))
        assert len(wrote) == len(made) > 1
        for a, b in zip(wrote, made, strict=True):
            assert a.name[1:] == b.name[1:]
            assert a.read_bytes() == b.read_bytes()
            b.unlink()
            a.unlink()


def test_a_pattern_and_a_folder_name_the_files(tmp_path: Path) -> None:
    ps.write(table_of(90), str(tmp_path / "x.tfrecord"), num_shards=3)
    made = ps.convert(
        str(tmp_path / "x-*.tfrecord"), str(tmp_path / "p{shard}.arrow"), num_shards=2
    )
    assert [os.path.basename(p) for p in made.paths] == ["p0.arrow", "p1.arrow"]
    made = ps.convert(str(tmp_path / "x-*.tfrecord"), str(tmp_path / "out") + "/", format="parquet")
    names = [f"x-0000{n}-of-00003.parquet" for n in range(3)]
    assert [os.path.basename(p) for p in made.paths] == names
    assert [pq.read_metadata(p).num_rows for p in made.paths] == [30, 30, 30]
    assert sorted(os.listdir(tmp_path / "out")) == names
    with pytest.raises(ValueError, match="format="):
        ps.convert(str(tmp_path / "x-*.tfrecord"), str(tmp_path / "out"))


def test_columns_are_chosen_and_renamed(tmp_path: Path) -> None:
    pq.write_table(table_of(50), tmp_path / "a.parquet")
    ps.convert(
        str(tmp_path / "a.parquet"),
        str(tmp_path / "b.tfrecord"),
        columns=["name", "id"],
        rename={"id": "number"},
        prove=True,
    )
    assert sorted(whole(tmp_path / "b.tfrecord").column_names) == ["name", "number"]
    for bad in ({"columns": ["nope"]}, {"rename": {"nope": "x"}}, {"rename": {"id": "name"}}):
        with pytest.raises(ps.SchemaError):
            ps.convert(str(tmp_path / "a.parquet"), str(tmp_path / "c.tfrecord"), **bad)
    assert not (tmp_path / "c.tfrecord").exists()


def test_what_tfrecord_cannot_hold_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    maps = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    pq.write_table(pa.table({"x": maps}), tmp_path / "a.parquet")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ps.SchemaError, match="cast it"):
        ps.convert(str(tmp_path / "a.parquet"), str(tmp_path / "b.tfrecord"))
    assert sorted(os.listdir(tmp_path)) == before


def test_narrow_types_come_back_as_what_they_were_stored_as(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1, -2], pa.int32()),
            "b": pa.array([True, False]),
            "t": pa.array([5, 6], pa.timestamp("us")),
            "s": pa.array(["é", ""]),
            "d": pa.array([0.5, -1.25], pa.float64()),
            "v": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2)),
            "st": pa.array([{"x": 1, "y": b"q"}, {"x": 2, "y": b""}]),
            "n": pa.array([[[1, 2], [3]], [[4]]], pa.list_(pa.list_(pa.int64()))),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    ps.convert(str(tmp_path / "a.parquet"), str(tmp_path / "b.tfrecord"), prove=True)
    pq.write_table(pa.table({"d": [0.1]}), tmp_path / "c.parquet")
    with pytest.raises(ps.SchemaError, match="round"):
        ps.convert(str(tmp_path / "c.parquet"), str(tmp_path / "d.tfrecord"), exact=True)
    made = ps.convert(str(tmp_path / "c.parquet"), str(tmp_path / "d.tfrecord"), prove=True)
    assert made.notes == ("field 'd': float64 is rounded to float32, which the format holds",)


@pytest.mark.parametrize("kind", ["tfrecord", "tfrecord.gz", "parquet", "arrow"])
def test_a_shuffle_is_a_permutation_by_its_seed(tmp_path: Path, kind: str) -> None:
    ps.write(table_of(2000), str(tmp_path / f"a.{kind}"), num_shards=3)
    source = [str(p) for p in sorted(tmp_path.glob("a-*")) if not p.name.endswith(".penstock")]
    for seed, name in ((1, "b"), (1, "c"), (2, "d")):
        target = str(tmp_path / f"{name}.tfrecord")
        ps.convert(source, target, shuffle=seed, prove=True, num_shards=2)
    ids = {}
    for name in "bcd":
        ids[name] = whole([str(p) for p in sorted(tmp_path.glob(f"{name}-*.tfrecord"))])[
            "id"
        ].to_pylist()
        assert sorted(ids[name]) == list(range(2000)) != ids[name]
    assert ids["b"] == ids["c"] != ids["d"]


def test_a_proof_names_the_record_and_field_that_differ() -> None:
    from penstock.verbs.convert.proof import prove_equal

    a = pa.record_batch({"x": pa.array([1.0, float("nan")]), "y": [[1], []]})
    prove_equal(iter([a]), iter([a]), "f", 0)
    b = pa.record_batch({"x": pa.array([1.0, float("nan")]), "y": [[1], None]})
    with pytest.raises(ps.FormatError) as caught:
        prove_equal(iter([a]), iter([b]), "f", 10)
    assert (caught.value.record, caught.value.field) == (11, "y")
    with pytest.raises(ps.FormatError, match="number of records"):
        prove_equal(iter([a]), iter([a.slice(1)]), "f", 0)


CHILD = """
import os, signal, sys
import penstock as ps
from penstock.columns.types import VariableShapeTensorType
calls = 0
def tell(records, done, total):
    global calls
    calls += 1
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
ps.convert(sys.argv[1], sys.argv[2], num_shards=8, progress=tell, shuffle=3, threads=1)
"""


def test_a_killed_conversion_continues_and_ends_with_the_same_bytes(tmp_path: Path) -> None:
    pq.write_table(table_of(4000), tmp_path / "a.parquet", row_group_size=500)
    source = str(tmp_path / "a.parquet")
    (tmp_path / "whole").mkdir()
    ps.convert(source, str(tmp_path / "whole" / "x.tfrecord"), num_shards=8, shuffle=3)
    expected = {p.name: p.read_bytes() for p in (tmp_path / "whole").iterdir()}
    assert len(expected) == 16
    (tmp_path / "cut").mkdir()
    target = str(tmp_path / "cut" / "x.tfrecord")
    for calls in (3, 2, 2):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, source, target, str(calls)], check=False
        )
        assert done.returncode == -signal.SIGKILL
        left = os.listdir(tmp_path / "cut")
        assert left
        assert all(".penstock-" in name for name in left), left
    finished = sum(name.startswith(".penstock-part") and name[-1].isdigit() for name in left)
    assert finished > 0
    seen: list[int] = []
    ps.convert(source, target, num_shards=8, shuffle=3, progress=lambda r, b, t: seen.append(r))
    assert seen[-1] == 4000
    assert {p.name: p.read_bytes() for p in (tmp_path / "cut").iterdir()} == expected


def test_what_another_job_has_finished_is_not_used(tmp_path: Path) -> None:
    pq.write_table(table_of(4000), tmp_path / "a.parquet", row_group_size=500)
    (tmp_path / "cut").mkdir()
    target = str(tmp_path / "cut" / "x.tfrecord")
    source = str(tmp_path / "a.parquet")
    subprocess.run([sys.executable, "-c", CHILD, source, target, "4"], check=False)
    assert os.listdir(tmp_path / "cut")
    ps.convert(source, target, num_shards=8)
    assert len(os.listdir(tmp_path / "cut")) == 16
    ids = whole([str(p) for p in sorted((tmp_path / "cut").glob("*.tfrecord"))])["id"].to_pylist()
    assert ids == list(range(4000))


def test_an_existing_target_is_kept(tmp_path: Path) -> None:
    ps.write(table_of(10), str(tmp_path / "a.tfrecord"))
    (tmp_path / "b.parquet").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        ps.convert(str(tmp_path / "a.tfrecord"), str(tmp_path / "b.parquet"))
    assert (tmp_path / "b.parquet").read_bytes() == b"mine"
    with pytest.raises(ValueError, match="cannot be a target"):
        ps.convert(str(tmp_path / "a.tfrecord"), str(tmp_path / "a.tfrecord"), overwrite=True)


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    ps.write(table_of(20000), str(tmp_path / "a.tfrecord"))
    for threads in (1, 2, 5):
        for kind in ("parquet", "arrow", "tfrecord.gz"):
            target = str(tmp_path / f"t{threads}.{kind}")
            ps.convert(str(tmp_path / "a.tfrecord"), target, threads=threads)
            assert Path(target).read_bytes() == (tmp_path / f"t1.{kind}").read_bytes()


def test_tars_are_compared_by_what_is_in_them(tmp_path: Path) -> None:
    ps.write({"__key__": ["a", "b"], "txt": ["x", "y"]}, tmp_path / "a.tar", describe=False)
    ps.convert(tmp_path / "a.tar", tmp_path / "b.tar.gz", prove=True)
    ps.convert(tmp_path / "a.tar", tmp_path / "c.parquet", prove=True)
    assert ps.diff(tmp_path / "a.tar", tmp_path / "b.tar.gz").equal
    assert ps.diff(tmp_path / "c.parquet", tmp_path / "b.tar.gz").equal
    asked = ps.diff(tmp_path / "a.tar", tmp_path / "b.tar.gz", columns=["__url__"])
    assert [field.name for field in asked.fields] == ["__url__"]


def test_ragged_tensors_go_from_columnar_files_to_any_other(tmp_path: Path) -> None:
    """Arrow returns such tensors as a type of its own, which Python hardly supports."""
    type_ = VariableShapeTensorType(pa.float32(), 1)
    rows = [{"data": [1.0] * n, "shape": [n]} for n in (1, 2)]
    array = pa.ExtensionArray.from_storage(type_, pa.array(rows, type_.storage_type))
    ps.write(pa.table({"npy": array}), tmp_path / "a.tar")
    for before, after in (("tar", "parquet"), ("parquet", "tar"), ("tar", "arrow")):
        target = tmp_path / f"b.{after}"
        ps.convert(tmp_path / f"a.{before}", target, prove=True, columns=["npy"])
        assert ps.diff(tmp_path / "a.tar", target, columns=["npy"]).equal
        target.replace(tmp_path / f"a.{after}")
    (tmp_path / "a.tar").rename(tmp_path / "a-0.tar")
    made = ps.append(ps.open(tmp_path / "a.arrow"), str(tmp_path / "a-*.tar"))
    found = ps.open(list(made.paths))[1]["npy"]
    assert (found.dtype, found.tolist()) == (np.float32, rows[1]["data"])
