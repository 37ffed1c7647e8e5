"""MXNet reads files that penstock writes, record by record, by key and as batches of images, and penstock reads files
that MXNet writes.

MXNet is retired and needs a NumPy before 2, so it is in a separate environment, which the Makefile makes.
PENSTOCK_MXNET can name the Python of another environment.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from fuzz.mxnet_rules import MAGIC_BYTES
from penstock.payloads.images import decode_images, encode_images
from reading import ROOT

MXNET = os.environ.get("PENSTOCK_MXNET", str(ROOT / ".venv-mxnet" / "bin" / "python"))
PROGRAM = str(Path(__file__).with_name("mxnet_program.py"))
COUNT = 24
"""A multiple of MXNet's batch size: MXNet fills a short last batch with arbitrary memory."""


def payloads() -> list[bytes]:
    """Payloads full of magics, at multiples of four and at other offsets; empty payloads, and one of a megabyte."""
    rng = np.random.default_rng(3)
    pieces = (MAGIC_BYTES, MAGIC_BYTES[1:], b"", b"\0" * 5, bytes(300))
    some = [b"".join(pieces[n] for n in rng.integers(0, 5, rng.integers(0, 9))) for _ in range(300)]
    return [*some, MAGIC_BYTES * 3, rng.bytes(1 << 20)]


def pixels() -> np.ndarray:
    """Smooth gradients, which a JPEG keeps nearly unchanged."""
    slopes = np.add.outer(np.arange(COUNT) * 5, np.arange(24 * 32 * 3) % 120).astype(np.uint8)
    return slopes.reshape(COUNT, 24, 32, 3)


def images() -> list[bytes]:
    return encode_images(pixels(), "jpeg", quality=95).storage.to_pylist()


def rows(*, lists: bool) -> list[list[Any]]:
    """Label, id, id2 and image; ids use all of their 64 bits."""
    ids = [(1 << 64) - 1 - n if n % 3 else n for n in range(COUNT)]
    labels = [[n / 4, 1.0, -n] if lists else n / 4 for n in range(COUNT)]
    return [[label, id_, 7, im] for label, id_, im in zip(labels, ids, images(), strict=True)]


def table(*, lists: bool) -> pa.Table:
    label, id_, id2, image = zip(*rows(lists=lists), strict=True)
    types = (pa.list_(pa.float32()) if lists else pa.float32(), pa.uint64(), pa.uint64())
    columns = [pa.array(v, t) for v, t in zip((label, id_, id2), types, strict=True)]
    return pa.table(dict(zip(("label", "id", "id2"), columns, strict=True)) | {"image": image})


def texts(values: list[list[Any]]) -> str:
    return json.dumps([[*row[:-1], row[-1].hex()] for row in values])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that penstock wrote with MXNet's results for them, and the reverse, all made by one process of
    MXNet."""
    if not Path(MXNET).exists():
        pytest.fail(f"{MXNET} is not there; `make .venv-mxnet/built` makes it")
    made = tmp_path_factory.mktemp("mxnet")
    ps.write({"data": pa.array(payloads(), pa.binary())}, made / "ours.rec")
    ps.write(table(lists=False), made / "pack.rec")
    ps.write(table(lists=True), made / "lists.rec")
    (made / "theirs.json").write_text(json.dumps([p.hex() for p in payloads()]))
    (made / "their-pack.json").write_text(texts(rows(lists=False)))
    (made / "their-lists.json").write_text(texts(rows(lists=True)))
    commands = [
        ["read", "ours.rec", "ours.json"],
        ["keyed", "ours.rec", "ours-keyed.json"],
        ["unpacked", "pack.rec", "pack.json"],
        ["unpacked", "lists.rec", "lists.json"],
        ["pictures", "pack.rec", "pack.npz"],
        ["write", "theirs.rec", "theirs.json"],
        ["pack", "their-pack.rec", "their-pack.json"],
        ["pack", "their-lists.rec", "their-lists.json"],
    ]
    done = subprocess.run(
        [MXNET, PROGRAM],
        input=json.dumps([[what, *(str(made / name) for name in two)] for what, *two in commands]),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return made


def test_mxnet_reads_every_record_in_order_and_by_key(folder: Path) -> None:
    found = json.loads((folder / "ours.json").read_text())
    assert [bytes.fromhex(record) for record in found] == payloads()
    keyed = json.loads((folder / "ours-keyed.json").read_text())
    assert [(key, bytes.fromhex(record)) for key, record in reversed(keyed)] == list(
        enumerate(payloads())
    )


@pytest.mark.parametrize("lists", [False, True], ids=["one label", "labels"])
def test_mxnet_unpacks_labels_ids_and_images(folder: Path, *, lists: bool) -> None:
    found = json.loads((folder / ("lists.json" if lists else "pack.json")).read_text())
    assert {row[0] for row in found} == {3 if lists else 0}
    assert [[*row[1:-1], bytes.fromhex(row[-1])] for row in found] == rows(lists=lists)


def test_mxnet_trains_on_the_pictures(folder: Path) -> None:
    found = np.load(folder / "pack.npz")
    assert found["labels"].tolist() == [row[0] for row in rows(lists=False)]
    wanted = decode_images(pa.array(images())).astype(int)
    # MXNet has another libjpeg, with the less exact transform.
    assert abs(found["pixels"].transpose(0, 2, 3, 1).astype(int) - wanted).max() <= 8


def test_penstock_reads_what_mxnet_writes_and_writes_the_same_bytes(folder: Path) -> None:
    dataset = ps.open(str(folder / "theirs.rec"), raw=True)
    found = [row for batch in dataset.scan() for row in batch.column(0).to_pylist()]
    assert found == payloads()
    for theirs, ours in (("theirs", "ours"), ("their-pack", "pack"), ("their-lists", "lists")):
        their_bytes = (folder / f"{theirs}.rec").read_bytes()
        assert their_bytes == (folder / f"{ours}.rec").read_bytes(), theirs


@pytest.mark.parametrize("lists", [False, True], ids=["one label", "labels"])
def test_penstock_reads_the_packs_of_mxnet_by_their_index(folder: Path, *, lists: bool) -> None:
    path = folder / ("their-lists.rec" if lists else "their-pack.rec")
    index = (folder / ("lists.idx" if lists else "pack.idx")).read_bytes()
    assert path.with_suffix(".idx").read_bytes() == index
    dataset = ps.open(str(path))
    backwards = list(range(COUNT))[::-1]
    for taken in (dataset.take(backwards), pa.table(dataset).take(backwards)):
        assert [list(row.values()) for row in taken.to_pylist()] == rows(lists=lists)[::-1]
