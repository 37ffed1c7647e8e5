"""Members of archives that contain several values: npz, MessagePack and CBOR, as webdataset writes them."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from pathlib import Path
from typing import Any

import cbor2
import msgpack
import numpy as np
import pyarrow as pa
import pytest

import penstock as ps


def archive(path: Path, records: list[dict[str, bytes]]) -> str:
    with tarfile.open(path, "w") as tar:
        for number, record in enumerate(records):
            for field, value in record.items():
                member = tarfile.TarInfo(f"{number:04d}.{field}")
                member.size = len(value)
                tar.addfile(member, io.BytesIO(value))
    return str(path)


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def read(path: str, **options: Any) -> list[dict[str, Any]]:
    found = ps.open(path, index="never", **options).scan()
    return [record for batch in found for record in batch.to_pylist()]


def test_npz_members_are_structs_of_their_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [
        {"pose": rng.random((2, 3), np.float32), "label": np.int64(n), "many": np.arange(n + 1)}
        for n in range(5)
    ]
    path = archive(tmp_path / "a.tar", [{"npz": npz(**one)} for one in arrays])
    ds = ps.open(path, index="never")
    type_ = ds.schema.field("npz").type
    assert type_.field("pose").type.shape == [2, 3]
    assert type_.field("label").type == pa.int64()
    for found, one in zip(read(path), arrays, strict=True):
        assert found["npz"]["label"] == int(one["label"])
        assert found["npz"]["pose"] == one["pose"].reshape(-1).tolist()
        assert found["npz"]["many"]["data"] == one["many"].tolist()
    assert ds.take([3, 1]).column("npz").to_pylist() == [read(path)[n]["npz"] for n in (3, 1)]


def test_object_arrays_in_an_npz_stay_bytes(tmp_path: Path) -> None:
    data = npz(good=np.arange(3), bad=np.array([{}, print], object))
    found = read(archive(tmp_path / "a.tar", [{"npz": data}] * 2))
    assert found[0]["npz"]["good"] == [0, 1, 2]
    assert found[0]["npz"]["bad"].startswith(b"\x93NUMPY")


@pytest.mark.parametrize(
    ("field", "pack"), [("mp", msgpack.packb), ("msg", msgpack.packb), ("cbor", cbor2.dumps)]
)
def test_maps_are_structs(field: str, pack: Any, tmp_path: Path) -> None:
    values = [{"a": n, "b": f"text {n}", "c": [n / 2, n / 3]} for n in range(4)]
    records = [{field: pack(value), "cls": b"%d" % n} for n, value in enumerate(values)]
    del records[2][field]
    path = archive(tmp_path / "a.tar", records)
    found = [record[field] for record in read(path)]
    assert found == [values[0], values[1], None, values[3]]
    as_bytes = [record[field] for record in read(path, schema={field: pa.binary()})]
    assert as_bytes == [record.get(field) for record in records]
    assert read(path, decode=False)[0][field] == records[0][field]


def test_values_that_are_not_maps_stay_bytes(tmp_path: Path) -> None:
    packed = [msgpack.packb(n) for n in range(3)]
    records = [{"mp": one, "cbor": cbor2.dumps([1]), "npz": b"no archive"} for one in packed]
    for found, record in zip(read(archive(tmp_path / "a.tar", records)), records, strict=True):
        assert {name: found[name] for name in record} == record


@pytest.mark.parametrize("field", ["mp", "cbor", "npz"])
def test_a_later_value_that_does_not_fit_names_its_record(field: str, tmp_path: Path) -> None:
    good = {
        "mp": msgpack.packb({"a": 1}),
        "cbor": cbor2.dumps({"a": 1}),
        "npz": npz(a=np.arange(2)),
    }
    records = [{field: good[field]} for _ in range(6)]
    records[4] = {field: b"\xff\xff\xff"}
    path = archive(tmp_path / "a.tar", records)
    with pytest.raises(ps.FormatError) as caught:
        read(path, infer_records=3)
    assert (caught.value.record, caught.value.field) == (4, field)


def test_without_cbor2_cbor_members_stay_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path / "a.tar", [{"cbor": cbor2.dumps({"a": 1})}])
    monkeypatch.setitem(sys.modules, "cbor2", None)
    assert read(path)[0]["cbor"] == cbor2.dumps({"a": 1})


@pytest.mark.parametrize(
    "value",
    [
        bytes.fromhex("a16161d81c81d81d00"),  # {"a": a list that holds itself}
        b"\xa1\x61a" + b"\x81" * 200 + b"\x00",
        # Each list holds the list before it ten times.
        bytes.fromhex("a16161d81c8a") + b"\x00" * 10 + b"",
    ],
)
def test_cbor_that_contains_itself_stays_bytes(value: bytes, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", [{"cbor": value}])
    read(path)  # as bytes, or as numbers; pyarrow would crash
    good = cbor2.dumps({"a": [1]})
    path = archive(
        tmp_path / "b.tar", [{"cbor": good}, {"cbor": bytes.fromhex("a16161d81c81d81d00")}]
    )
    with pytest.raises(ps.FormatError, match="contain each other"):
        read(path, infer_records=1)


@pytest.mark.parametrize("damage", ["error", "skip"])
@pytest.mark.parametrize("field", ["npz", "txt.gz"])
def test_members_that_inflate_stay_within_the_limits_together(
    tmp_path: Path, field: str, damage: str
) -> None:
    """A scan reads fewer records at a time. A `take` of this many records is refused, and so is a single record that
    is too large."""

    def member(size: int) -> bytes:
        if field == "txt.gz":
            return gzip.compress(bytes(size))
        one = io.BytesIO()
        np.savez_compressed(one, x=np.zeros(size, np.uint8))
        return one.getvalue()

    path = archive(tmp_path / "a.tar", [{field: member((1 << 18) + n % 2)} for n in range(8)])
    limits = {"batch_bytes": 600_000}
    dataset = ps.open(path, index="never", limits=limits, damage=damage)
    batches = list(dataset.scan())
    assert sum(batch.num_rows for batch in batches) == 8
    assert max(batch.nbytes for batch in batches) <= limits["batch_bytes"]
    assert dataset.damage == []
    with pytest.raises(ps.LimitError, match="batch_bytes=600000") as caught:
        dataset.take(range(8))
    assert "fewer records at once" in str(caught.value.hint)
    with pytest.raises(ps.LimitError, match="batch_bytes=9999") as caught:
        ps.open(path, index="never", limits={"batch_bytes": 9_999}, damage=damage).take([3])
    assert "limits={'batch_bytes': " in str(caught.value.hint)
