"""Folders of images in a store: the same records as on this machine, from one listing and one request for each image."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.storage import MemoryStorage
from remote.servers.fault_proxy import FaultProxy
from remote.servers.seaweed import Seaweed


def jpeg(seed: int, side: int = 8) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (1, side, side, 3), np.uint8)
    return ps.encode_images(pixels, "jpeg")[0].as_py()


def table(kind: str) -> bytes:
    rows = [{"file_name": f"{n}.jpg", "score": n / 2} for n in (2, 0, 1)]
    if kind == "csv":
        return b"file_name,score\n" + b"".join(
            f"{r['file_name']},{r['score']}\n".encode() for r in rows
        )
    if kind == "jsonl":
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


CLASSES = {f"{c}/{n}.jpg": jpeg(n) for c in ("dog", "cat") for n in range(3)}
FLAT = {f"{n}.jpg": jpeg(n) for n in (2, 0, 1)}
LAYOUTS: dict[str, dict[str, bytes]] = {
    "classes": CLASSES,
    "flat": FLAT,
    "large": {"a.jpg": jpeg(1, 700), "b.jpg": jpeg(2)},
    "csv": {**FLAT, "metadata.csv": table("csv")},
    "jsonl": {**FLAT, "metadata.jsonl": table("jsonl")},
    "parquet": {**FLAT, "metadata.parquet": table("parquet")},
    "labels of folders": {
        **CLASSES,
        "labels.csv": b"file,x\n" + b"".join(f"{name},1\n".encode() for name in CLASSES),
    },
    "beside": {**CLASSES, "README.md": b"# pets", ".hidden": b"x", "_SUCCESS": b""},
    "underscores": {"_a/_1.jpg": jpeg(1), "_a/_2.jpg": jpeg(2), "b/3.jpg": jpeg(3)},
    "splits": {f"{s}/{name}": data for s in ("train", "val") for name, data in CLASSES.items()},
}


@pytest.fixture
def options(seaweed: Seaweed) -> dict[str, Any]:
    return seaweed.options()


def laid(files: dict[str, bytes], folder: Path, seaweed: Seaweed, prefix: str) -> tuple[str, str]:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        seaweed.client.put(f"{prefix}/pets/{name}", data)
    return str(folder), f"s3://{prefix}/pets"


def shown(ds: ps.Dataset) -> Any:
    return ds.schema, ds.to_table().to_pylist(), [shard.num_records for shard in ds.shards]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_in_a_store_has_the_records_of_one_on_this_machine(
    layout: str, tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, Any]
) -> None:
    here, there = laid(LAYOUTS[layout], tmp_path / "pets", seaweed, prefix)
    expected = ps.open(here)
    for name in (there, there + "/"):
        ds = ps.open(name, storage_options=options)
        assert {shard.format for shard in ds.shards} == {"imagefolder"}
        assert shown(ds) == shown(expected)
    wanted = np.random.default_rng(0).integers(0, len(ds), 7)
    assert ds.take(wanted).to_pylist() == expected.take(wanted).to_pylist()
    again = pickle.loads(
        pickle.dumps(ps.open(there, storage_options={**options, "pickle_secrets": True}))
    )
    assert again[1] == expected[1]
    assert ps.verify(there, storage_options=options).num_records == len(ds)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_in_any_storage_has_the_same_records(layout: str, tmp_path: Path) -> None:
    storage = MemoryStorage({f"pets/{name}": data for name, data in LAYOUTS[layout].items()})
    for name, data in LAYOUTS[layout].items():
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    assert shown(ps.open("pets/", storage=storage)) == shown(ps.open(str(tmp_path / "pets")))


def test_a_loader_decodes_and_resumes(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, Any]
) -> None:
    here, there = laid(CLASSES, tmp_path / "pets", seaweed, prefix)

    def batches(name: str, state: Any = None, **how: Any) -> Iterator[Any]:
        loader = ps.Loader(
            ps.open(name, **how), 2, order=ps.Shuffled(1), decode={"image": ps.Image(size=8)}
        )
        if state is not None:
            loader.load_state_dict(state)
        for batch in loader:
            yield batch, loader.state_dict()

    local = [batch for batch, _ in batches(here)]
    found = list(batches(there, storage_options=options))
    for one, (other, _) in zip(local, found, strict=True):
        assert (one["image"] == other["image"]).all()
        assert (one["label"] == other["label"]).all()
    rest = [batch for batch, _ in batches(there, found[0][1], storage_options=options)]
    assert all((a["image"] == b["image"]).all() for a, b in zip(rest, local[1:], strict=True))


def test_the_folder_is_listed_once_and_each_image_requested_once(
    tmp_path: Path, seaweed: Seaweed, prefix: str
) -> None:
    _, there = laid({f"{n:03}.jpg": jpeg(n) for n in range(60)}, tmp_path / "pets", seaweed, prefix)
    with FaultProxy(seaweed.endpoint) as proxy:
        ds = ps.open(there, storage_options=seaweed.options(proxy.endpoint))
        assert len(ds) == 60
        listings = [one for one in proxy.requests() if one.query.endswith("pets%2F")]
        assert len(listings) == 1
        assert proxy.count() <= 3  # the others look for fields beside the folder
        proxy.forget()
        assert len(ds.take(range(60))) == 60
        assert proxy.count() == 60


def test_a_replaced_image_is_an_error(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, Any]
) -> None:
    _, there = laid(CLASSES, tmp_path / "pets", seaweed, prefix)
    ds = ps.open(there, storage_options=options)
    seaweed.client.put(f"{prefix}/pets/dog/1.jpg", jpeg(9))
    with pytest.raises(ps.ChangedError, match=r"dog/1\.jpg"):
        ds.to_table()
    assert ps.open(there, storage_options=options)[4]["image"] == jpeg(9)


def test_a_file_that_is_no_image_is_named_by_its_address(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, Any]
) -> None:
    _, there = laid({**CLASSES, "dog/9.jpg": b"no picture"}, tmp_path / "pets", seaweed, prefix)
    with pytest.raises(ps.FormatError, match=r"is not an image") as caught:
        ps.open(there, storage_options=options).to_table()
    assert caught.value.file == f"s3://{prefix}/pets/dog/9.jpg"


def test_a_folder_of_images_is_converted_from_a_store(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, Any]
) -> None:
    here, there = laid(CLASSES, tmp_path / "pets", seaweed, prefix)
    ps.convert(there, tmp_path / "a.tar", storage_options=options)
    ps.convert(here, tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
