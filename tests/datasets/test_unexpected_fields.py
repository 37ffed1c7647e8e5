"""No field is lost silently: one that the inferred schema lacks is an error of a conversion and a warning of a scan, and
`infer_records="all"` reads all files."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgpack
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

MANY = 1500
"""More records than the number from which a schema is inferred."""


def tar(rows: list[dict[str, bytes]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for n, row in enumerate(rows):
            for name, data in row.items():
                member = tarfile.TarInfo(f"{n:06d}.{name}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def late(path: Path) -> None:
    """Records with `id`; the last one also has `late`."""
    rows = [{"id": n} for n in range(MANY)]
    if path.suffix == ".tfrecord":
        # Without the sidecar, because it would have the schema.
        ps.write({"id": range(MANY), "late": [None] * (MANY - 1) + [7]}, path, index=False)
    elif path.suffix == ".tar":
        found = [{"id.txt": b"%d" % row["id"]} for row in rows]
        found[-1]["late.txt"] = b"7"
        path.write_bytes(tar(found))
    else:
        rows[-1]["late"] = 7
        path.write_bytes(b"".join(map(msgpack.packb, rows)))


NAMES = ["a.tfrecord", "a.tar", "a.msgpack"]


def named(schema: pa.Schema) -> set[str]:
    return {name.removesuffix(".txt") for name in schema.names if not name.startswith("__")}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_field_that_comes_late_is_an_error_of_a_conversion(
    name: str, threads: int, tmp_path: Path
) -> None:
    late(tmp_path / name)
    out = tmp_path / "out.parquet"
    for source in (str(tmp_path / name), ps.open(tmp_path / name)):
        with pytest.raises(ps.SchemaError, match="was not seen") as told:
            ps.convert(source, out, threads=threads, prove=True)
        assert told.value.record == MANY - 1
        assert (told.value.field or "").startswith("late")
        assert "infer_records" in (told.value.hint or "")
        assert not out.exists()
    with pytest.raises(ps.SchemaError, match="was not seen"):
        ps.write(ps.open(tmp_path / name), out)
    found = ps.open(tmp_path / name, infer_records="all")
    assert ps.convert(found, out, threads=threads, prove=True).num_records == MANY
    assert named(ps.open(out).schema) == {"id", "late"}


@pytest.mark.parametrize("name", NAMES)
def test_naming_columns_raises_no_error(name: str, tmp_path: Path) -> None:
    late(tmp_path / name)
    dataset = ps.open(tmp_path / name)
    column = next(c for c in dataset.schema.names if not c.startswith("__"))
    assert ps.convert(dataset, tmp_path / "out.parquet", columns=[column]).num_records == MANY
    some = ps.open(tmp_path / name, columns=[column])
    made = ps.convert(some, tmp_path / "out.parquet", overwrite=True)
    assert made.num_records == MANY


WAYS = {
    "a scan": lambda ds: [batch.num_rows for batch in ds.scan()],
    "one thread": lambda ds: [batch.num_rows for batch in ds.scan(threads=1)],
    "a take": lambda ds: ds[MANY - 1],
    "a view": lambda ds: ds.filter(lambda batch: np.ones(batch.num_rows, bool)).to_table(),
    "a loader": lambda ds: list(ps.Loader(ds, 100)),
    "a shuffling loader": lambda ds: list(ps.Loader(ds, 100, order=ps.Shuffled(0))),
    "a loader of windows": lambda ds: list(ps.Loader(ds, 100, order=ps.Blocked(0))),
    "polars": lambda ds: ds.lazy().collect(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", NAMES)
def test_reading_warns_once_of_a_field_that_comes_late(name: str, way: str, tmp_path: Path) -> None:
    late(tmp_path / name)
    read = WAYS[way]
    with pytest.warns(UserWarning, match="infer_records") as told:
        read(ps.open(tmp_path / name))
    (warned,) = told
    assert f"record {MANY - 1} has the field 'late" in str(warned.message)
    assert name in str(warned.message)
    found = ps.open(tmp_path / name)
    assert sum(map(len, found.scan())) == len(found) == MANY  # no second warning
    assert named(found[MANY - 1 :].schema) == {"id"}


@pytest.mark.parametrize("name", NAMES)
def test_each_dataset_of_a_folder_warns_of_its_own_late_field(name: str, tmp_path: Path) -> None:
    stem, suffix = name.split(".")
    paths = [tmp_path / f"{stem}{n}.{suffix}" for n in range(4)]
    for path in paths:
        late(path)
    for some in (paths[:2], paths[2], paths[3]):
        ds = ps.open(some)
        with pytest.warns(UserWarning, match="late") as told:
            assert sum(map(len, ds.scan())) == len(ds)
        assert len(told) == 1


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_each_dataset_of_a_folder_warns_of_its_own_columns(ending: str, tmp_path: Path) -> None:
    for split in ("train", "val"):
        ps.write({"id": [1]}, tmp_path / f"{split}-0.{ending}")
        for n in (1, 2):
            ps.write({"id": [1], "late": [2], "more": [3]}, tmp_path / f"{split}-{n}.{ending}")
        ds = ps.open(f"{tmp_path}/{split}-*.{ending}")
        with pytest.warns(UserWarning, match="the columns 'late', 'more', which are left") as told:
            assert len(ds.to_table()) == 3
        assert len(told) == 1


@pytest.mark.parametrize("threads", [1, 4])
def test_many_threads_that_meet_late_fields_read_all_records(threads: int, tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / f"{n}.msgpack").write_bytes(
            b"".join(
                msgpack.packb({"id": k} | ({"late": 1} if k > 1200 else {})) for k in range(300_000)
            )
        )
    dataset = ps.open(tmp_path)
    with pytest.warns(UserWarning, match="late") as told:
        assert sum(map(len, dataset.scan(threads=threads))) == 1_200_000
    assert len(told) == 1


@pytest.mark.parametrize("name", NAMES)
def test_fields_of_other_files_are_reported_and_found(name: str, tmp_path: Path) -> None:
    stem, suffix = name.split(".")
    paths = [tmp_path / f"{stem}-{n}.{suffix}" for n in range(3)]
    rows = [[{"id": b"1"}, {"id": b"2"}], [{"id": b"3", "late": b"x"}], [{"only": b"y"}]]
    for path, some in zip(paths, rows, strict=True):
        if suffix == "tfrecord":
            columns = some[0]
            ps.write({key: [row[key] for row in some] for key in columns}, path)
        elif suffix == "tar":
            path.write_bytes(tar([{f"{k}.txt": v for k, v in row.items()} for row in some]))
        else:
            path.write_bytes(b"".join(map(msgpack.packb, some)))
    out = tmp_path / "out.parquet"
    with pytest.raises(ps.SchemaError, match="was not seen"):
        ps.convert(ps.open(paths, infer_records=1), out)
    dataset = ps.open(paths, infer_records="all")
    assert ps.convert(dataset, out, prove=True).num_records == 4
    assert named(ps.open(out).schema) == {"id", "late", "only"}
    assert ps.open(out).take([0, 3]).num_rows == 2
    assert ps.open(paths, infer_records="all").take([3, 2]).num_rows == 2


def test_keys_within_maps_are_fields_as_well(tmp_path: Path) -> None:
    rows = [{"a": {"b": n}} for n in range(MANY)]
    rows[-1]["a"]["late"] = 1
    (tmp_path / "a.msgpack").write_bytes(b"".join(map(msgpack.packb, rows)))
    with pytest.raises(ps.SchemaError, match="was not seen"):
        ps.convert(tmp_path / "a.msgpack", tmp_path / "a.parquet")


def test_types_of_several_files_become_one_that_holds_all(tmp_path: Path) -> None:
    ps.write({"a": [1, 2], "t": ["x", "y"]}, tmp_path / "a-0.tfrecord")
    ps.write({"a": [[3, 4], [5]], "t": [b"\xff", b"y"]}, tmp_path / "a-1.tfrecord")
    dataset = ps.open(tmp_path / "a-*.tfrecord", infer_records="all")
    assert dataset.schema.field("a").type == pa.list_(pa.int64())
    found = pa.table(dataset).to_pylist()
    assert [row["a"] for row in found] == [[1], [2], [3, 4], [5]]
    assert [row["t"] for row in found] == [b"x", b"y", b"\xff", b"y"]
    ps.write({"a": ["text"]}, tmp_path / "a-2.tfrecord")
    with pytest.raises(ps.SchemaError, match="have no common type"):
        ps.open([tmp_path / "a-0.tfrecord", tmp_path / "a-2.tfrecord"], infer_records="all")


def test_a_conversion_keeps_the_metadata_of_fields(tmp_path: Path) -> None:
    field = pa.field("x", pa.int64(), metadata={"unit": "mm"})
    ps.write(pa.table([pa.array([1, 2])], pa.schema([field])), tmp_path / "a.arrow")
    for name in ("a.parquet", "a.npz", "a.h5", "a.tar"):
        ps.convert(tmp_path / "a.arrow", tmp_path / name, prove=True)
        ps.convert(tmp_path / name, tmp_path / "back.arrow", overwrite=True)
        metadata = ps.open(tmp_path / "back.arrow").schema.field("x").metadata or {}
        assert metadata.get(b"unit") == b"mm", name
    np.savez(tmp_path / "c.npz", x=np.array([1 + 2j, 3 - 4j], np.complex64))
    ps.convert(tmp_path / "c.npz", tmp_path / "d.npz")
    with np.load(tmp_path / "d.npz") as found:
        assert found["x"].dtype == np.complex64
    mixed = [{"k": n, "e": msgpack.ExtType(5, b"ab"), "m": [1, "x"][n % 2]} for n in range(4)]
    (tmp_path / "e.msgpack").write_bytes(b"".join(map(msgpack.packb, mixed)))
    ps.convert(tmp_path / "e.msgpack", tmp_path / "f.parquet")
    ps.convert(tmp_path / "f.parquet", tmp_path / "g.msgpack", where="k >= 0")
    assert list(msgpack.Unpacker(io.BytesIO((tmp_path / "g.msgpack").read_bytes()))) == mixed


@pytest.mark.parametrize("late", [2**63 + 5, "text", {"a": 1}])
def test_a_proof_reads_all_written_records(late: object, tmp_path: Path) -> None:
    early = 1 if isinstance(late, int) else None
    type_ = pa.uint64() if isinstance(late, int) else None
    column = pa.array([early] * MANY + [late], type_)
    ps.write(pa.table({"x": column}), tmp_path / "a.arrow")
    made = ps.convert(tmp_path / "a.arrow", tmp_path / "a.msgpack", prove=True)
    assert made.num_records == MANY + 1
    assert [path.name for path in tmp_path.glob(".penstock*")] == []


def two_files(folder: Path, ending: str) -> list[str]:
    """Two files, of which the second also stores `late`."""
    paths = [str(folder / f"{name}.{ending}") for name in "ab"]
    ps.write({"id": [1, 2]}, paths[0])
    ps.write({"id": [3, 4], "late": [5, 6]}, paths[1])
    return paths


STORING = ["parquet", "arrow", "npz", "h5", "beton", "tar"]
"""Formats whose files store their columns."""


@pytest.mark.parametrize("ending", STORING)
def test_verbs_that_write_lose_no_column_that_only_a_later_file_stores(
    tmp_path: Path, ending: str
) -> None:
    paths = two_files(tmp_path, ending)
    ds = ps.open(paths)
    other, target = tmp_path / "other.arrow", tmp_path / "out.arrow"
    ps.write({"id": [1, 2, 3, 4]}, other)
    for reading in (
        lambda: ps.convert(paths, target),
        lambda: ps.convert(ds, target, shuffle=1),
        lambda: ps.write(ds, target),
        lambda: ps.dedupe(paths, into=target),
        lambda: ps.diff(paths, other),
        lambda: ps.diff(other, paths),
    ):
        with pytest.raises(ps.SchemaError, match="would be lost") as caught:
            reading()
        assert (caught.value.file, caught.value.field) == (paths[1], "late")
        assert not target.exists()


@pytest.mark.parametrize("ending", STORING)
def test_named_columns_of_files_with_further_columns_are_read(tmp_path: Path, ending: str) -> None:
    paths = two_files(tmp_path, ending)
    ids = [1, 2, 3, 4]
    assert len(ps.open(paths)) == ps.info(paths).num_records == 4
    assert ps.open(paths).to_table(["id"])["id"].to_pylist() == ids
    narrow = ps.open(paths, columns=["id"])
    assert narrow.to_table().to_pydict() == {"id": ids}
    ps.convert(paths, tmp_path / "out.arrow", columns=["id"], prove=True)
    assert ps.diff(narrow, tmp_path / "out.arrow").equal


@pytest.mark.parametrize("into", [None, "out/"])
def test_changing_fields_loses_no_column_of_a_later_file(tmp_path: Path, into: str | None) -> None:
    paths = two_files(tmp_path, "parquet")
    before = [Path(path).read_bytes() for path in paths]
    where = {"in_place": True} if into is None else {"into": tmp_path / into}
    with pytest.raises(ps.SchemaError, match="would be lost"):
        ps.add_fields(paths, {"new": 1}, **where)
    assert [Path(path).read_bytes() for path in paths] == before
    assert not list(tmp_path.glob("out/*.parquet"))


TYPES = {"id": "int32"}
VERBS: dict[str, Callable[[ps.Dataset, Path], object]] = {
    "convert": ps.convert,
    "shuffle": lambda ds, to: ps.convert(ds, to, shuffle=1),
    "filter": lambda ds, to: ps.convert(ds.filter("id > 0"), to),
    "again": lambda ds, to: ps.convert(ds.with_types({"id": "int16"}), to),
    "write": ps.write,
    "dedupe": lambda ds, to: ps.dedupe(ds, into=to),
    "sort": lambda ds, to: ps.sort(ds, "id", into=to),
    "split": lambda ds, to: ps.convert(ps.split(ds, {"a": 1})["a"], to),
    "diff": lambda ds, to: ps.diff(ds, ds.select(["id"])),
    "tasks": lambda ds, to: ps.convert(ds, to, num_shards=2),
}


@pytest.mark.parametrize("ending", STORING)
def test_types_of_other_fields_change_nothing_for_a_column_of_a_later_file(
    tmp_path: Path, ending: str
) -> None:
    paths = two_files(tmp_path, ending)
    for types in (None, TYPES):
        for name, verb in VERBS.items():
            with pytest.raises(ps.SchemaError, match="would be lost") as caught:
                verb(ps.open(paths, types=types), tmp_path / "out.arrow")
            assert (caught.value.file, caught.value.field) == (paths[1], "late"), name
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("ending", ["tfrecord", "msgpack", "tar"])
def test_types_of_other_fields_change_nothing_for_a_field_of_a_late_record(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"a.{ending}"
    late(path)
    name = ps.open(path).schema.names[ending == "tar"]
    types = {name: "string" if ending == "tar" else "int32"}
    # `id` has another name in a tar.
    verbs = ["convert", "write", "split"] if ending == "tar" else list(VERBS)
    for verb in verbs:
        run = VERBS[verb]
        if verb != "diff":
            with pytest.raises(ps.SchemaError, match="was not seen") as caught:
                run(ps.open(path), tmp_path / "out.arrow")
        with pytest.raises(ps.SchemaError, match="was not seen") as caught:
            run(ps.open(path, types=types), tmp_path / "out.arrow")
        assert (caught.value.file, caught.value.record) == (str(path), MANY - 1), verb
    assert not list(tmp_path.glob("out*"))
    with pytest.warns(UserWarning, match="'late.*inferred from the first 1000 records"):
        assert ps.open(path, types=types).to_table().num_rows == MANY


def test_types_of_other_fields_change_nothing_for_the_values_and_the_lack_of_a_field(
    tmp_path: Path,
) -> None:
    wide = pa.table({"id": [3], "x": pa.array([0.1], pa.float64())})
    ps.write(pa.table({"id": [1], "x": pa.array([0.5], pa.float32())}), tmp_path / "a.parquet")
    ps.write(wide, tmp_path / "b.parquet")
    ps.write({"id": [3]}, tmp_path / "c.parquet")
    for types in (None, TYPES):
        with pytest.raises(ps.SchemaError, match="would be rounded"):
            ps.open([tmp_path / "a.parquet", tmp_path / "b.parquet"], types=types).to_table()
        with pytest.raises(ps.SchemaError, match="no such column") as caught:
            ps.open([tmp_path / "a.parquet", tmp_path / "c.parquet"], types=types).to_table()
        assert caught.value.field == "x"
    both = ps.open([tmp_path / "a.parquet", tmp_path / "b.parquet"], types={"x": "float64"})
    assert both.to_table().to_pydict() == {"id": [1, 3], "x": [0.5, 0.1]}


def test_types_know_fields_that_overlays_hide(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ps.write({"id": [1, 2], "x": [3, 4], "y": [5, 6]}, path)
    ps.drop_fields(path, ["x"])
    ps.replace_fields(path, {"y": [7, 8]})
    ds = ps.open(path, types=TYPES)
    ps.convert(ds, tmp_path / "out.arrow")
    assert ps.open(tmp_path / "out.arrow").to_table().to_pydict() == {"id": [1, 2], "y": [7, 8]}


READINGS: dict[str, Callable[[ps.Dataset], object]] = {
    "to_table": lambda ds: ds.to_table(),
    "scan": lambda ds: list(ds.scan()),
    "head": lambda ds: ds.head(4),
    "lazy": lambda ds: ds.lazy().collect(),
    "to_arrow_dataset": lambda ds: ds.to_arrow_dataset().to_table(),
    "stats": ps.stats,
    "take": lambda ds: ds[3],
    "tasks": lambda ds: [list(task.batches()) for task in ds.tasks()],
    "filter": lambda ds: ds.filter("id > 3").to_table(),
    "rename": lambda ds: ds.rename({"id": "number"}).to_table(),
}


@pytest.mark.parametrize("ending", STORING)
def test_reading_warns_once_of_a_column_that_only_a_later_file_stores(
    tmp_path: Path, ending: str
) -> None:
    for types in (None, TYPES):
        for name, reading in READINGS.items():
            folder = tmp_path / f"{name}-{types is None}"
            folder.mkdir()
            paths = two_files(folder, ending)
            ds = ps.open(paths, types=types)
            assert ds.to_table(["id"]).num_rows == 4
            with pytest.warns(UserWarning, match="'late.*the first file has no such") as caught:
                reading(ds)
            reading(ds)  # without a second warning
            assert [str(one.message).startswith(paths[1]) for one in caught] == [True], name


def test_verbs_lose_nothing_after_a_warning(tmp_path: Path) -> None:
    ds = ps.open(two_files(tmp_path, "parquet"))
    with pytest.warns(UserWarning, match="late"):
        ds.to_table()
    with pytest.raises(ps.SchemaError, match="would be lost"):
        ps.convert(ds, tmp_path / "out.arrow")


@pytest.mark.parametrize("ending", [*STORING, "tfrecord", "msgpack"])
def test_all_files_give_their_columns(tmp_path: Path, ending: str) -> None:
    paths = two_files(tmp_path, ending)
    expected = {"id": [1, 2, 3, 4], "late": [None, None, 5, 6]}
    for order in (paths, paths[::-1]):
        rows = expected if order is paths else {k: v[2:] + v[:2] for k, v in expected.items()}
        for types in (None, TYPES):
            ds = ps.open(order, infer_records="all", types=types)
            assert ds.to_table(["id", "late"]).to_pydict() == rows
            assert ds[3 if order is paths else 0]["late"] == (6 if order is paths else 5)
            ps.convert(ds, tmp_path / "out.arrow", overwrite=True)
            assert ps.open(tmp_path / "out.arrow").to_table(["id", "late"]).to_pydict() == rows
            found = [row for task in ds.tasks() for b in task.batches() for row in b.to_pylist()]
            assert [row["late"] for row in found] == rows["late"]
    assert ps.open(paths[0], infer_records="all").to_table(["id"]).to_pydict() == {"id": [1, 2]}


def test_types_of_stored_columns_become_one_that_holds_all(tmp_path: Path) -> None:
    for name, array in (("a", pa.array([1, 2], pa.int32())), ("b", pa.array([0.1], pa.float64()))):
        ps.write(pa.table({"x": array}), tmp_path / f"{name}.parquet")
    ps.write({"x": ["text"]}, tmp_path / "c.parquet")
    ds = ps.open([tmp_path / "a.parquet", tmp_path / "b.parquet"], infer_records="all")
    assert ds.to_table().to_pydict() == {"x": [1.0, 2.0, 0.1]}
    with pytest.raises(ps.SchemaError, match="no common type"):
        ps.open(tmp_path / "*.parquet", infer_records="all")
    with pytest.raises(TypeError, match="no option 'infer_records'"):
        ps.open(tmp_path / "a.parquet", infer_records=5)
