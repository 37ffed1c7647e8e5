"""Masks in conversions: they keep exactly their values, and a mask that did not is noted."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import penstock as ps
from penstock.columns.types import ImageType
from penstock.payloads.masks import mask_values, resize_masks

rng = np.random.default_rng(3)
LABELS = rng.choice(np.array([0, 5], np.uint8), (90, 120))
PHOTO = rng.integers(0, 255, (90, 120, 3), dtype=np.uint8)


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def palette(indices: np.ndarray) -> Image.Image:
    image = Image.fromarray(indices, "P")
    image.putpalette([n % 256 for n in range(7, 7 + 3 * (int(indices.max()) + 1))])
    return image


MASKS = {
    "L": Image.fromarray(LABELS),
    "1": Image.fromarray(LABELS > 0),
    "P of 1 bit": palette(LABELS // 5),
    "P of 4 bits": palette(LABELS),
    "P of 8 bits": palette(LABELS * 40),
    "I;16": Image.fromarray(LABELS.astype(np.uint16) * 1000),
    "RGB": Image.fromarray(np.stack([LABELS, LABELS * 3, LABELS * 7], axis=2)),
}


def pixels_of(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize("kind", MASKS)
def test_a_smaller_mask_is_what_pillow_makes_by_the_nearest_pixels(kind: str) -> None:
    mask = MASKS[kind]
    (made,) = resize_masks([png(mask)], 64).storage.to_pylist()
    found = Image.open(io.BytesIO(made))
    right = mask.resize((64, 48), Image.Resampling.NEAREST)
    assert found.mode == Image.open(io.BytesIO(png(mask))).mode
    assert np.array_equal(np.asarray(found), np.asarray(right))
    assert found.getpalette() == right.getpalette()


def test_masks_that_need_no_change_keep_their_bytes_and_others_become_pngs() -> None:
    small, ppm = png(MASKS["P of 4 bits"]), b"P5 3 1 255 " + bytes([1, 2, 9])
    made = resize_masks([small, None, ppm], 120)
    assert made.type == ImageType("png")
    assert made.storage.to_pylist()[:2] == [small, None]
    assert pixels_of(made.storage[2].as_py()).tolist() == [[1, 2, 9]]


def test_a_damaged_mask_is_an_error_with_its_record() -> None:
    whole = png(MASKS["L"])
    with pytest.raises(ps.FormatError) as caught:
        resize_masks([whole, whole[:-30]], 64)
    assert caught.value.record == 1


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.tar"
    jpegs = ps.encode_images([PHOTO] * 3, "jpeg")
    masks = pa.array([png(MASKS[kind]) for kind in ("L", "P of 4 bits", "I;16")])
    ps.write(
        {"jpg": jpegs, "seg.png": pa.ExtensionArray.from_storage(ImageType("png"), masks)}, path
    )
    return path


@pytest.mark.parametrize("more", [{}, {"image_mode": "webp"}, {"num_shards": 2}])
@pytest.mark.parametrize("target", ["out.tar", "out.parquet"])
def test_named_masks_keep_exactly_their_values(
    pairs: Path, tmp_path: Path, target: str, more: dict[str, Any]
) -> None:
    made = ps.convert(pairs, tmp_path / target, max_side=64, masks=["seg.png"], prove=True, **more)
    table = ps.open(made.paths).to_table()
    seen = [mask_values(data).tolist() for data in table["seg.png"].to_pylist()]
    assert seen == [[0, 5], [0, 5], [0, 5000]]
    assert [pixels_of(data).shape for data in table["seg.png"].to_pylist()] == [(48, 64)] * 3
    assert [pixels_of(data).shape for data in table["jpg"].to_pylist()] == [(48, 64, 3)] * 3
    assert table.schema.field("seg.png").type == ImageType("png")
    assert not [note for note in made.notes if "masks" in note]


@pytest.mark.parametrize("kind", ["L", "1", "P of 4 bits", "I;16"])
@pytest.mark.parametrize("how", [{"max_side": 64}, {"image_mode": "jpg"}])
def test_a_mask_that_got_other_values_is_noted(
    kind: str, how: dict[str, Any], tmp_path: Path
) -> None:
    jpegs = ps.encode_images([PHOTO] * 2, "jpeg")
    ps.write({"image": jpegs, "seg": [png(MASKS[kind])] * 2}, tmp_path / "in.parquet")
    made = ps.convert(
        tmp_path / "in.parquet", tmp_path / "out.parquet", images=["image", "seg"], **how
    )
    (note,) = made.notes
    assert note.startswith("field 'seg': ")
    assert "masks=['seg']" in note


def test_pictures_that_are_no_masks_are_not_noted(tmp_path: Path) -> None:
    grey = [
        png(Image.fromarray(PHOTO[:, :, 0])),
        png(Image.fromarray(np.zeros((90, 90), np.uint8))),
    ]
    ps.write({"image": grey}, tmp_path / "in.parquet")
    made = ps.convert(tmp_path / "in.parquet", tmp_path / "out.parquet", max_side=64)
    assert made.notes == ()
    lossless = ps.convert(
        tmp_path / "in.parquet", tmp_path / "o.parquet", images=["image"], image_mode="raw"
    )
    assert lossless.notes == ()


def test_masks_are_refused_where_they_would_have_no_effect(pairs: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.tar"
    with pytest.raises(ValueError, match="needs max_side= or image_mode="):
        ps.convert(pairs, target, masks=["seg.png"])
    with pytest.raises(ps.SchemaError, match="does not exist, or cannot hold images"):
        ps.convert(pairs, target, masks=["nope"], max_side=64)
    with pytest.raises(TypeError, match=r"such as \['seg.png'\]"):
        ps.convert(pairs, target, masks="seg.png", max_side=64)
    with pytest.raises(ps.UnsupportedError, match="cannot keep the values of masks"):
        ps.convert(pairs, tmp_path / "out.beton", masks=["seg.png"], max_side=64)
    assert [path.name for path in tmp_path.glob("*out*")] == []
