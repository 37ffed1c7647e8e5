"""Files of a set that are in no known format: other programs' files, and data that was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import penstock as ps

ENDINGS = ["tfrecord", "tar", "parquet", "arrow", "npz", "beton", "h5"]
LOST = {"zeros": bytes(100), "page": b"<html><body>404 Not Found</body></html>"}
FOREIGN = {
    "preview.jpg": b"\xff\xd8\xff\xe0 a picture",
    "0.htm5": LOST["page"],
    "deep/plan.pdf": b"%PDF-1.7 ",
}
NO_FORMAT = b"\x01\x07 some bytes of another program \xff\xfe" * 20


def write_files(folder: Path, ending: str) -> None:
    (folder / "deep").mkdir()
    for number, name in enumerate(("0", "deep/1", "deep/2")):
        ids = list(range(10 * number, 10 * number + 10))
        ps.write({"id": ids, "x": [0.5] * 10}, folder / f"{name}.{ending}")


def ids_of(ds: ps.Dataset) -> list[int]:
    return ds.to_table()["id"].to_pylist()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_program_is_left_out_and_listed(
    tmp_path: Path, ending: str, name: str
) -> None:
    write_files(tmp_path, ending)
    (tmp_path / name).write_bytes(FOREIGN[name])
    with pytest.warns(UserWarning, match="left out .*in no known format"):
        ds = ps.open(tmp_path)
    assert ids_of(ds) == list(range(30))
    assert list(ds.skipped_files) == [(str(tmp_path / name), "in no known format")]
    with pytest.warns(UserWarning, match="left out"):
        made = ps.convert(tmp_path, tmp_path / "all.parquet")
    assert made.num_records == 30


@pytest.mark.parametrize(
    ("name", "data"), [("model.bin", NO_FORMAT), ("part-00001", LOST["page"]), ("b", NO_FORMAT)]
)
def test_a_file_that_may_be_a_lost_shard_is_an_error_or_listed_as_damage(
    tmp_path: Path, name: str, data: bytes
) -> None:
    write_files(tmp_path, "tfrecord")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ps.FormatError, match=name):
        ps.open(tmp_path)
    ds = ps.open(tmp_path, damage="skip")
    assert sorted(ids_of(ds)) == list(range(30))
    assert [region.file for region in ds.damage] == [str(tmp_path / name)]


def test_data_of_another_ending_that_cannot_be_recognised_is_an_error(tmp_path: Path) -> None:
    write_files(tmp_path, "tfrecord")
    (tmp_path / "more.parquet").write_bytes(LOST["page"])
    with pytest.raises(ps.FormatError, match=r"more\.parquet") as caught:
        ps.open(tmp_path)
    assert "without this file" in (caught.value.hint or "")
    ds = ps.open(tmp_path, damage="skip")
    assert ids_of(ds) == list(range(30))
    [region] = ds.damage
    assert region.file == str(tmp_path / "more.parquet")


def test_a_folder_of_nothing_known_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(NO_FORMAT)
    (tmp_path / "b.dat").write_bytes(NO_FORMAT)
    with pytest.raises(ps.FormatError, match="no known format"):
        ps.open(tmp_path)


def test_several_formats_are_an_error_that_names_both_and_the_glob(tmp_path: Path) -> None:
    write_files(tmp_path, "tfrecord")
    ps.write({"id": [1]}, tmp_path / "a.parquet")
    for damage in ("error", "skip"):
        with pytest.raises(
            ps.FormatError, match=r"3 tfrecord .*1 parquet|1 parquet .*3 tf"
        ) as caught:
            ps.open(tmp_path, damage=damage)
        assert "*.tfrecord" in (caught.value.hint or "")
        assert "a.parquet" in (caught.value.hint or "")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("place", ["0", "deep/1"])
@pytest.mark.parametrize("damage", ["skip", "stop"])
def test_a_file_of_a_set_that_was_lost_is_one_skipped_region(
    tmp_path: Path, ending: str, lost: str, place: str, damage: Any
) -> None:
    write_files(tmp_path, ending)
    path = tmp_path / f"{place}.{ending}"
    path.write_bytes(LOST[lost])
    with pytest.raises(ps.FormatError, match=path.name):
        ids_of(ps.open(tmp_path))
    wanted = [n for n in range(30) if n // 10 != int(path.stem)]
    ds = ps.open(tmp_path, damage=damage)
    assert ids_of(ds) == wanted
    [region] = ds.damage
    assert (region.file, region.num_records) == (str(path), None)
    assert (region.start_byte, region.end_byte) == (0, path.stat().st_size)
    assert region.reason
    again = ps.open(tmp_path, damage=damage)
    loader = ps.Loader(again, 7)
    assert sum(len(batch["id"]) for batch in loader) == 20
    assert loader.damage == [region]


def test_all_files_in_no_format_are_an_error_also_if_damage_is_skipped(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.parquet").write_bytes(LOST["page"])
    with pytest.raises(ps.FormatError, match="HTML"):
        ps.open(tmp_path, damage="skip")
