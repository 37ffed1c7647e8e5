"""ffcv reads files that penstock writes, with both of its caches, and penstock reads files that ffcv writes.

ffcv needs numba, torch, OpenCV and a compiler, so it is in a separate environment, which the Makefile makes.
PENSTOCK_FFCV can name the Python of another environment.
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
from penstock.columns.types import ImageType, fixed_tensors
from penstock.payloads.images import decode_images, encode_images
from reading import ROOT

FFCV = os.environ.get("PENSTOCK_FFCV", str(ROOT / ".venv-ffcv" / "bin" / "python"))
PROGRAM = str(Path(__file__).with_name("ffcv_program.py"))
COUNT = 23


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that penstock wrote, and ffcv's results: `x.beton`, and `x.npz` or `x.json`. One process makes all of
    them, because ffcv takes ten seconds to start."""
    if not Path(FFCV).exists():
        pytest.fail(f"{FFCV} is not there; `make .venv-ffcv/built` makes it")
    made = tmp_path_factory.mktemp("ffcv")
    ps.write(table(), made / "fields.beton", image_mode="smart", page_bytes=1 << 21)
    ps.write(many_rows(), made / "rows.beton", page_bytes=1 << 21)
    ps.write(table().slice(0, 0), made / "none.beton")
    commands = [
        ["load", "fields.beton", "fields.npz"],
        ["stored", "rows.beton", "rows.json"],
        ["stored", "none.beton", "none.json"],
        ["write", "theirs.beton", "theirs.npz"],
        ["stored", "theirs.beton", "theirs.json"],
    ]
    done = subprocess.run(
        [FFCV, PROGRAM],
        input=json.dumps(
            [[what, *(str(made / name) for name in names)] for what, *names in commands]
        ),
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return made


def table() -> pa.Table:
    """Every kind of field, with empty values and both kinds of image."""
    rng = np.random.default_rng(9)
    slopes = np.add.outer(np.arange(COUNT) * 5, np.arange(16 * 24 * 3) % 120).astype(np.uint8)
    pixels = slopes.reshape(COUNT, 16, 24, 3)
    pictures = encode_images(pixels, "ppm").storage.to_pylist()
    jpegs = encode_images(pixels, "jpeg").storage.to_pylist()
    grey = encode_images(pixels[..., 0], "jpeg").storage.to_pylist()
    mixed = [(pictures, jpegs, grey)[n % 3][n] for n in range(COUNT)]
    return pa.table(
        {
            "id": np.arange(COUNT) - 5,
            "weight": np.arange(COUNT) / 3,
            "data": [rng.bytes(n % 5) for n in range(COUNT)],
            "a name of 16 ch.": fixed_tensors(
                rng.standard_normal((COUNT, 2, 3)).astype(np.float32)
            ),
            "text": pa.array([json.dumps({"n": n, "s": "né"}) for n in range(COUNT)], pa.json_()),
            "bits": fixed_tensors(rng.integers(0, 2, (COUNT, 5)).astype(bool)),
            "image": pa.ExtensionArray.from_storage(ImageType(), pa.array(mixed)),
        }
    )


def test_ffcv_loads_what_penstock_writes_by_both_caches(folder: Path) -> None:
    wanted = table()
    found = np.load(folder / "fields.npz")
    pixels = decode_images(wanted.column("image")).astype(int)
    for cache in (True, False):
        assert (found[f"id.{cache}"][:, 0] == wanted.column("id").to_numpy()).all()
        assert (found[f"weight.{cache}"][:, 0] == wanted.column("weight").to_numpy()).all()
        data = [bytes.fromhex(str(value)) for value in found[f"data.{cache}"]]
        assert data == wanted.column("data").to_pylist()
        texts = [bytes.fromhex(str(value)) for value in found[f"text.{cache}"]]
        assert texts == [t.encode() + b"\0" for t in wanted.column("text").to_pylist()]
        for name in ("a name of 16 ch.", "bits"):
            flat = found[f"{name}.{cache}"].reshape(COUNT, -1).tolist()
            assert flat == wanted.column(name).to_pylist()
        # ffcv decodes JPEG with the fast, less exact transform.
        assert abs(found[f"image.{cache}"].astype(int) - pixels).max() <= 8


def many_rows() -> pa.Table:
    """More rows than one page can hold, so that the first pages of values must be moved to the end."""
    jpegs = encode_images(np.zeros((1, 8, 8, 3), np.uint8), "jpeg").storage.to_pylist()
    values = pa.array([jpegs[0] + b"\0" * (n % 7) for n in range(90_000)])
    image = pa.ExtensionArray.from_storage(ImageType(), values)
    return pa.table({"image": image, "n": np.arange(90_000)})


def test_ffcv_sees_the_same_jpegs_after_rows_moved_to_other_pages(folder: Path) -> None:
    said = json.loads((folder / "rows.json").read_text())
    assert said["records"] == 90_000
    found = [bytes.fromhex(image[3]) for image in said["images"]["image"]]
    assert found == many_rows().column("image").to_pylist()
    assert {tuple(image[:3]) for image in said["images"]["image"]} == {(0, 8, 8)}


def test_ffcv_opens_a_file_of_no_records(folder: Path) -> None:
    said: dict[str, Any] = json.loads((folder / "none.json").read_text())
    assert (said["records"], said["names"]) == (0, table().schema.names)


def test_penstock_reads_what_ffcv_writes_with_several_workers(folder: Path) -> None:
    wrote = np.load(folder / "theirs.npz")
    stored = json.loads((folder / "theirs.json").read_text())
    for mmap in (False, True):
        dataset = ps.open(folder / "theirs.beton", mmap=mmap, index="never")
        found = pa.Table.from_batches(list(dataset.scan()))
        assert found.column("label").to_pylist() == [n - 7 for n in range(250)]
        assert found.column("weight").to_pylist() == [n / 8 for n in range(250)]
        assert (decode_images(found.column("image")) == wrote["image"]).all()
        data = [bytes.fromhex(str(value)) for value in wrote["data"]]
        assert found.column("data").to_pylist() == data
        vectors = found.column("vector").combine_chunks().to_numpy_ndarray()
        assert (vectors == wrote["vector"]).all()
        assert found.column("bits").to_pylist() == wrote["bits"].tolist()
        texts = [json.loads(text) for text in found.column("text").to_pylist()]
        assert texts == [{"n": n, "name": "né" * (n % 4)} for n in range(250)]
        pictures = found.column("picture").to_pylist()
        assert {picture[:2] for picture in pictures} == {b"P6", b"\xff\xd8"}
        for picture, (mode, width, height, value) in zip(
            pictures, stored["images"]["picture"], strict=True
        ):
            head = b"P6\n%d %d\n255\n" % (width, height) if mode else b""
            assert picture == head + bytes.fromhex(value)
        assert dataset.take([249, 0, 3]).to_pylist() == found.take([249, 0, 3]).to_pylist()
