"""Whether files can form one dataset if they have several formats, have no field in common, or are empty."""

from __future__ import annotations

import re
import tarfile
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_listing import RECORD, laid, picture

import penstock as ps
from penstock.errors import PenstockError
from penstock.storage.local import LocalStorage
from penstock.storage.paths import expand


def proposals(error: PenstockError) -> list[str]:
    return re.findall(r"'([^']*)'", error.hint or "")


def tar(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for end, data in (("jpg", b"\xff\xd8"), ("txt", b"cap")):
            member = tarfile.TarInfo(f"{path.stem}0.{end}")
            member.size = len(data)
            archive.addfile(member, BytesIO(data))


def parquet(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"url": ["u"]}), path)


Lay = Callable[[Path], None]


def img2dataset(folder: Path) -> None:
    for n in range(3):
        tar(folder / f"{n:05d}.tar")
        parquet(folder / f"{n:05d}.parquet")
        (folder / f"{n:05d}_stats.json").write_text("{}")


def one_beside_others(folder: Path) -> None:
    parquet(folder / "all.parquet")
    for n in range(3):
        tar(folder / f"a[{n}].tar")


def in_folders(folder: Path) -> None:
    for n in range(2):
        tar(folder / f"x/{n}/{n}.tar")
        parquet(folder / f"y/{n}/{n}.parquet")


def images_beside(folder: Path) -> None:
    picture(folder / "pictures" / "cat" / "1.jpg")
    parquet(folder / "data" / "1.parquet")
    parquet(folder / "data" / "2.parquet")


def names_without_endings(folder: Path) -> None:
    laid(folder, "part-00000", "part-00001")
    parquet(folder / "z.parquet")


@pytest.mark.parametrize(
    "lay", [img2dataset, one_beside_others, in_folders, images_beside, names_without_endings]
)
@pytest.mark.parametrize("source", ["", "/**"])
def test_files_of_several_formats_are_refused_with_globs_that_work(
    tmp_path: Path, lay: Lay, source: str
) -> None:
    folder = tmp_path / "d"
    lay(folder)
    everything = set(expand(str(folder), LocalStorage()).paths)
    if source and lay is images_beside:
        # `/**` matches the image file and not its folder. An image file by itself is not data, so
        # only Parquet files are left.
        return
    with pytest.raises(ps.FormatError, match="several formats") as caught:
        ps.open(f"{folder}{source}")
    found = [ps.open(one, index="never") for one in proposals(caught.value)]
    assert len(found) == 2
    assert sorted(path for ds in found for path in ds.paths) == sorted(everything)
    for ds in found:
        assert len({shard.format for shard in ds.shards}) == 1
        assert list(ds.scan())


def test_a_file_without_a_format_is_named_with_a_way_to_open_the_others(tmp_path: Path) -> None:
    laid(tmp_path, "a.tfrecord", "b.tfrecord")
    (tmp_path / "x.parquet").write_bytes(b"<html>no data</html>")
    with pytest.raises(ps.FormatError, match="not a parquet file") as caught:
        ps.open(tmp_path)
    assert caught.value.file == str(tmp_path / "x.parquet")
    (glob,) = proposals(caught.value)
    assert len(ps.open(glob)) == 4


def test_a_list_may_be_of_several_formats(tmp_path: Path) -> None:
    for name in ("a.tfrecord", "b.parquet"):
        ps.write(RECORD, tmp_path / name)
    assert len(list(ps.open([tmp_path / "a.tfrecord", tmp_path / "b.parquet"]))) == 4


@pytest.mark.filterwarnings("ignore:.*is left out")  # of the fields, before they are refused
@pytest.mark.parametrize("ending", ["tfrecord", "tar", "msgpack", "npz", "h5", "parquet", "arrow"])
@pytest.mark.parametrize("num_records", [2, 3000])
@pytest.mark.parametrize("way", ["scan", "take"])
def test_files_without_a_field_in_common_are_refused_with_globs_that_work(
    tmp_path: Path, ending: str, num_records: int, way: str
) -> None:
    for n in range(2):
        ps.write({"a": range(num_records)}, tmp_path / f"train-{n}.{ending}", index=False)
        ps.write({"b": range(num_records)}, tmp_path / f"users-{n}.{ending}", index=False)
    with pytest.raises(ps.SchemaError) as caught:
        ds = ps.open(tmp_path, index="never")
        list(ds.scan()) if way == "scan" else ds.take(range(0, len(ds), 7))
    found = proposals(caught.value)
    assert found == [f"{tmp_path}/train-*.{ending}", f"{tmp_path}/users-*.{ending}"]
    for one, name in zip(found, "ab", strict=True):
        table = pa.table(ps.open(one, index="never"))
        assert table.column(name).to_pylist() == [*range(num_records)] * 2


@pytest.mark.filterwarnings("ignore:.*the file has the column 'b', which is left out")
@pytest.mark.parametrize("ending", ["tfrecord", "tar", "msgpack"])
def test_files_that_share_a_field_are_one_dataset(tmp_path: Path, ending: str) -> None:
    ps.write({"a": [1], "id": [1]}, tmp_path / f"0.{ending}", index=False)
    ps.write({"b": [2], "id": [2]}, tmp_path / f"1.{ending}", index=False)
    assert [one["id"] for one in ps.open(tmp_path, index="never")] == [1, 2]
    assert len(list(ps.open(tmp_path, columns=["a"], index="never").scan())) > 0


def test_a_file_that_lacks_the_only_field_read_still_belongs_to_the_dataset(tmp_path: Path) -> None:
    ps.write({"a": [1] * 3000, "id": [1] * 3000}, tmp_path / "0.tfrecord")
    ps.write({"id": [2] * 3000}, tmp_path / "1.tfrecord")
    found = pa.table(ps.open(tmp_path, columns=["a"]))
    assert found.column("a").null_count == 3000


# -- files of no bytes ----------------------------------------------------------------------------

WITH_MARKS = [
    "tar",
    "parquet",
    "arrow",
    "npy",
    "npz",
    "h5",
    "beton",
    "arrayrecord",
    "mds",
    "tar.gz",
]
WITHOUT = ["tfrecord", "rec", "msgpack"]


@pytest.mark.parametrize("ending", WITH_MARKS)
def test_an_empty_file_is_a_finding_and_not_a_dataset(tmp_path: Path, ending: str) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.{ending}").touch()
    for source in (tmp_path, tmp_path / f"a.{ending}"):
        for damage in ("error", "skip", "stop"):
            with pytest.raises(ps.TruncatedError, match="no bytes"):
                ps.open(source, damage=damage)
        report = ps.verify(source)
        assert {finding.kind for finding in report.findings} == {"empty_file"}
        assert not report.ok
    repaired = ps.repair(tmp_path / f"a.{ending}", into=tmp_path / f"c.{ending}")
    assert repaired.findings == ps.verify(tmp_path / f"a.{ending}").findings
    if repaired.paths:  # an archive without records
        assert ps.verify(repaired.paths[0]).ok
        assert len(ps.open(repaired.paths[0])) == 0


@pytest.mark.parametrize(
    "ending", [e for e in WITH_MARKS if e not in ("beton", "arrayrecord", "mds")]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_file_of_no_bytes_among_others_holds_no_records(
    tmp_path: Path, ending: str, place: int
) -> None:
    data = {"a": [1, 2]} if ending != "npy" else {"data": [1, 2]}
    for n in range(3):
        if n != place:
            ps.write(data, tmp_path / f"{n}.{ending}", index=False)
    empty = tmp_path / f"{place}.{ending}"
    empty.touch()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ds = ps.open(tmp_path, index="never")
        assert len(ds) == 4
    assert ["no bytes" in str(one.message) for one in told] == [True]
    name = next(iter(data))
    assert pa.table(ds).column(name).to_pylist() == [1, 2, 1, 2]
    assert ds.take([3, 0]).column(name).to_pylist() == [2, 1]
    assert [shard.num_records for shard in ds.shards].index(0) == place
    assert [path for path, _ in ds.skipped_files] == [str(empty)]
    assert [finding.file for finding in ps.verify(tmp_path).findings] == [str(empty)]
    assert len(ps.Loader(ds, 2)) == 2


@pytest.mark.parametrize("ending", WITHOUT)
def test_an_empty_file_has_no_records_in_formats_without_a_file_header(
    tmp_path: Path, ending: str
) -> None:
    (tmp_path / f"a.{ending}").touch()
    ds = ps.open(tmp_path)
    assert (len(ds), ds.skipped_files, ps.verify(tmp_path).ok) == (0, (), True)
