"""npz files of which each is one record: `record="file"`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps


def case(number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    shape = (3 + number, 5, 2)
    return {
        "image": np.asfortranarray(rng.random(shape).astype(np.float32)),
        "mask": rng.random(shape[:2]) < 0.5,
        "spacing": rng.random(number + 1),
        "names": np.array(["a", "bé"][: number + 1]),
        "label": np.array(number),
        "empty": np.zeros((0, number), np.int16),
    }


@pytest.fixture
def source(tmp_path: Path) -> str:
    for number in range(4):
        save = np.savez if number % 2 else np.savez_compressed
        arrays: dict[str, Any] = case(number)
        save(tmp_path / f"case_{number:03}.npz", **arrays)
    return str(tmp_path / "*.npz")


def check(record: dict[str, Any], number: int) -> None:
    wanted = case(number)
    assert set(record) == {*wanted, "file_name"}
    assert record["file_name"] == f"case_{number:03}.npz"
    for name in ("image", "mask", "empty"):
        assert record[name].dtype == wanted[name].dtype
        np.testing.assert_array_equal(record[name], wanted[name])
    for name in ("spacing", "names", "label"):
        assert record[name] == wanted[name].tolist()


def test_each_file_is_a_record_of_its_own_shapes(source: str) -> None:
    ds = ps.open(source, record="file")
    assert len(ds) == 4
    for number in range(4):
        check(ds[number], number)
    for number, record in enumerate(ds):
        check(record, number)
    labels = ds.take([3, 0, 3]).column("label").to_pylist()
    assert labels == [3, 0, 3]
    assert ps.verify(source, record="file").num_records == 4


def test_loaders_give_arrays_of_each_shape(source: str) -> None:
    ds = ps.open(source, record="file")
    for batch_size in (1, 2):
        for step, batch in enumerate(ps.Loader(ds, batch_size)):
            for place, image in enumerate(batch["image"]):
                number = step * batch_size + place
                np.testing.assert_array_equal(image, case(number)["image"])
                assert batch["label"][place] == number


def test_columns_and_arrays_choose_what_is_read(source: str, tmp_path: Path) -> None:
    ds = ps.open(source, record="file", arrays=["label"])
    assert ds.schema.names == ["label", "file_name"]
    assert ps.open(source, record="file", columns=["mask"])[1]["mask"].shape == (4, 5)
    made = ps.convert(ps.open(source, record="file"), tmp_path / "cases.parquet", prove=True)
    assert made.num_records == 4
    check(ps.open(tmp_path / "cases.parquet")[2], 2)


def test_an_array_called_file_name_stays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", file_name=np.array("scan"), x=np.zeros((2, 2)))
    assert ps.open(tmp_path / "a.npz", record="file")[0]["file_name"] == "scan"


def test_an_array_that_a_file_lacks_is_an_error_that_names_the_file(
    source: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "case_004.npz", image=np.zeros((1, 1, 2), np.float32))
    with pytest.raises(ps.SchemaError) as caught:
        len(ps.open(source, record="file"))
    assert (caught.value.file, caught.value.field) == (str(tmp_path / "case_004.npz"), "mask")
    assert ps.open(source, record="file", arrays=["image"])[4]["image"].shape == (1, 1, 2)


def test_another_number_of_axes_is_an_error_that_names_the_file(
    source: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "case_004.npz", image=np.zeros((1, 1), np.float32))
    ds = ps.open(source, record="file")
    with pytest.raises(ps.SchemaError) as caught:
        list(ds)
    assert caught.value.file == str(tmp_path / "case_004.npz")


def test_wrong_words_and_sizes_are_refused(source: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'row' or 'file'"):
        ps.open(source, record="files")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ps.LimitError):
        ps.open(source, record="file", limits=ps.Limits(record_bytes=8))
    np.savez(tmp_path / "texts.npz", x=np.array([["a", "b"]]))
    with pytest.raises(ps.UnsupportedError, match="no tensors of string") as raised:
        ps.open(tmp_path / "texts.npz", record="file")
    assert raised.value.field == "x"


def test_damage_is_found(source: str, tmp_path: Path) -> None:
    path = tmp_path / "case_001.npz"
    data = bytearray(path.read_bytes())
    at = data.index(case(1)["spacing"].tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(ps.ChecksumError) as caught:
        list(ps.open(source, record="file"))
    assert caught.value.file == str(path)
    assert not ps.verify(source, record="file").ok


def test_an_error_shows_the_value_types_of_two_files(tmp_path: Path) -> None:
    for name, kind in (("a", np.float32), ("b", np.float64)):
        np.savez(tmp_path / f"{name}.npz", x=np.zeros((2, 3), kind))
    with pytest.raises(ps.SchemaError, match="would be rounded") as raised:
        ps.open(tmp_path / "*.npz", record="file").to_table()
    assert "value_type=float," in str(raised.value.expected)
    assert "value_type=double," in str(raised.value.found)
