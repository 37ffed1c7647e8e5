"""`Image(same=...)` in a loader: its columns, resuming, damage."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import jpeg, picture
from PIL import Image
from same_records import BOXES, HEIGHT, IMAGES, WIDTH, drawn, png

import penstock as ps


@pytest.mark.parametrize(
    ("same", "says"),
    [
        ({"nothing": "nearest"}, "no such column for same="),
        ({"boxes.x": "xy"}, "no such column for same="),
        ({"image": "image"}, "decoded in another way"),
        ({"label": "xyxy"}, "lists of 4 numbers"),
        ({"three": "xyxy"}, "lists of 4 numbers"),
        ({"objects.mask": "nearest"}, "whole columns"),
        ({"ols.c": "xyxy"}, "lists of 4 numbers"),
    ],
    ids=str,
)
def test_columns_that_cannot_be_joined_are_refused_immediately(
    same: dict[str, str], says: str, tmp_path: Path
) -> None:
    columns = {
        "image": IMAGES,
        "boxes": BOXES,
        "label": [1, 2, 3, 4],
        "three": np.zeros((4, 2, 3)),
        "objects": [{"mask": b""}] * 4,
        "ols": [[{"xyxy": [1.0, 2.0, 3.0, 4.0], "c": 1}]] * 4,
    }
    ps.write(columns, tmp_path / "d.parquet")
    with pytest.raises(ps.SchemaError, match=says):
        ps.Loader(ps.open(tmp_path / "d.parquet"), 2, decode={"image": ps.Image(8, same=same)})


def test_same_is_part_of_the_description() -> None:
    spec = ps.Image(8, same={"mask": "nearest"})
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert repr(spec) == "Image(size=8, same={'mask': 'nearest'})"
    assert ps.Image(8, same={}) == ps.Image(8)
    with pytest.raises(ValueError, match="known: image, nearest, xyxy, xy"):
        ps.Image(8, same={"mask": "bilinear"})


def written(folder: Path) -> Path:
    count = 24
    masks = [(one % 9).astype(np.uint8) for one in drawn(count)]
    path = folder / "d.parquet"
    columns = {
        "image": [jpeg(picture(HEIGHT, WIDTH, n)) for n in range(count)],
        "mask": [png(one) for one in masks],
        "right": [jpeg(picture(HEIGHT, WIDTH, 99 - n)) for n in range(count)],
        "boxes": [[[n, 0.5, 50, 40]] * (n % 3) for n in range(count)],
    }
    ps.write(columns, path)
    return path


SAME = {"mask": "nearest", "right": "image", "boxes": "xyxy"}


def batches(path: Path, **options: Any) -> ps.Loader:
    image = ps.Image(20, crop="random", flip=True, same=SAME)
    order = ps.Shuffled(seed=4)
    return ps.Loader(ps.open(path, **options), 5, order=order, decode={"image": image}, threads=2)


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        parts = zip(
            *(v if isinstance(v, tuple) else (v,) for v in (found[name], value)), strict=True
        )
        for one, other in parts:
            np.testing.assert_array_equal(one, other, err_msg=name)


def test_a_resumed_loop_repeats_the_crops_of_every_column(tmp_path: Path) -> None:
    loader = batches(written(tmp_path))
    list(loader)
    loop = iter(loader)
    next(loop)
    state = json.dumps(loader.state_dict())
    rest = list(loop)
    again = batches(tmp_path / "d.parquet")
    again.load_state_dict(json.loads(state))
    for found, expected in zip(again, rest, strict=True):
        assert_equal(found, expected)


def test_a_damaged_mask_is_damage_of_its_record(tmp_path: Path) -> None:
    columns = {
        "image": IMAGES,
        "mask": [png(np.full((HEIGHT, WIDTH), n, np.uint8)) for n in range(4)],
        "boxes": BOXES,
    }
    columns["mask"][2] = columns["mask"][2][:-40]
    ps.write(columns, tmp_path / "d.parquet")
    same = {"mask": "nearest", "boxes": "xyxy"}
    how: dict[str, Any] = {"decode": {"image": ps.Image(8, same=same)}}
    with pytest.raises(ps.FormatError, match="damaged PNG") as caught:
        next(iter(ps.Loader(ps.open(tmp_path / "d.parquet"), 4, **how)))
    assert (caught.value.record, caught.value.field) == (2, "mask")
    loader = ps.Loader(ps.open(tmp_path / "d.parquet", damage="skip"), 4, **how)
    batch = next(iter(loader))
    assert batch["mask"][:, 0, 0].tolist() == [0, 1, 3]
    assert batch["boxes"][2].tolist() == [0, 2, 2, 5]
    assert "field mask" in loader.damage[0].reason


def test_skipping_a_damaged_image_also_skips_its_mask(tmp_path: Path) -> None:
    images = [IMAGES[0], b"no image", IMAGES[1][:-200], IMAGES[2]]
    masks = [png(np.full((HEIGHT, WIDTH), n, np.uint8)) for n in range(4)]
    ps.write({"image": images, "mask": masks, "boxes": BOXES}, tmp_path / "d.parquet")
    same = {"mask": "nearest", "boxes": "xyxy"}
    for image in (ps.Image(8, same=same), ps.Image(same=same)):
        ds = ps.open(tmp_path / "d.parquet", damage="skip")
        batch = next(iter(ps.Loader(ds, 4, decode={"image": image})))
        assert [mask[0, 0] for mask in batch["mask"]] == [0, 3]
        assert len(batch["boxes"][2]) == 3


def test_a_picture_of_16_bits_keeps_them_only_in_its_own_entry(tmp_path: Path) -> None:
    """Two images of one size get the same crop and flip from equal settings."""
    pixels = np.random.default_rng(3).integers(0, 256, (6, 40, 50), np.uint8)
    main = [encoded(one) for one in pixels]
    deep = [encoded(one.astype(np.uint16) * 257) for one in pixels]
    ps.write({"image": main, "depth": deep}, tmp_path / "s.parquet")
    ds = ps.open(tmp_path / "s.parquet")
    how: dict[str, Any] = {"crop": "random", "flip": True}
    order = ps.Shuffled(seed=2)

    joined = ps.Image(16, same={"depth": "image"}, **how)
    with pytest.raises(ps.SchemaError, match=r"(?s)depth.*own entry in decode"):
        next(iter(ps.Loader(ds, 6, order=order, decode={"image": joined})))
    both = {"image": ps.Image(16, **how), "depth": ps.Image(16, dtype="uint16", **how)}
    batch = next(iter(ps.Loader(ds, 6, order=order, decode=both)))
    assert batch["depth"].dtype == np.uint16
    assert np.abs(batch["depth"] / 257 - batch["image"]).max() <= 1


def encoded(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()
