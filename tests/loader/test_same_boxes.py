"""Boxes and points that go with an image: moved by the same crop and flip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from same_records import BOXES, HEIGHT, IMAGES, SPECS, WIDTH, keys_of, loaded, png, views

import penstock as ps


def moved(boxes: list[list[float]], view: Any, size: tuple[int, int]) -> list[list[float]]:
    """The slow way, one box at a time."""
    left, top, width, height, flip = view
    made = []
    for x1, y1, x2, y2 in boxes:
        across = [min(max((x - left) * size[1] / width, 0), size[1]) for x in (x1, x2)]
        down = [min(max((y - top) * size[0] / height, 0), size[0]) for y in (y1, y2)]
        if flip:
            across = [size[1] - x for x in reversed(across)]
        made.append([across[0], down[0], across[1], down[1]])
    return made


FORMS = {
    "lists of lists": pa.list_(pa.list_(pa.float64())),
    "lists of four": pa.list_(pa.list_(pa.float64(), 4)),
    "large lists": pa.large_list(pa.large_list(pa.float64())),
}


@pytest.mark.parametrize("image", SPECS, ids=str)
def test_boxes_are_moved_and_clipped_and_none_is_dropped(
    image: dict[str, Any], tmp_path: Path
) -> None:
    same = {"boxes": "xyxy", "points": "xy"}
    points = [[corner for box in one for corner in (box[:2], box[2:])] for one in BOXES]
    columns = {"image": IMAGES, "boxes": BOXES, "points": points}
    batch = loaded(tmp_path, columns, {**image, "same": same}, ragged="list")
    size = batch["image"].shape[1:3]
    for n, view in enumerate(views(4, image, keys_of(tmp_path, 4))):
        expected = np.array(moved(BOXES[n], view, size)).reshape(-1, 4)
        found = np.array([*map(list, batch["boxes"][n])]).reshape(-1, 4)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        ends = np.array([*map(list, batch["points"][n])]).reshape(-1, 4)
        if view[4]:
            ends = ends[:, [2, 1, 0, 3]]
        np.testing.assert_allclose(ends, expected, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_ragged_boxes_keep_their_form(form: str, tmp_path: Path) -> None:
    image: dict[str, Any] = {"size": 40, "crop": "random", "flip": True, "same": {"boxes": "xyxy"}}
    columns = {"image": IMAGES, "boxes": pa.array(BOXES, FORMS[form])}
    plain = loaded(tmp_path, columns, {**image, "same": None})["boxes"]
    found = loaded(tmp_path, columns, image)["boxes"]
    assert isinstance(found, tuple) and len(found) == len(plain)
    for offsets, expected in zip(found[1:], plain[1:], strict=True):
        np.testing.assert_array_equal(offsets, expected)
    assert (found[0].shape, found[0].dtype) == (plain[0].shape, plain[0].dtype)
    lists = loaded(tmp_path, {**columns, "boxes": BOXES}, image)["boxes"]
    np.testing.assert_array_equal(found[0].ravel(), lists[0])
    padded = loaded(tmp_path, columns, image, ragged="pad")["boxes"]
    assert padded.shape == (4, 3, 4)
    assert not padded[1].any() and not padded[2, 1:].any()
    np.testing.assert_array_equal(padded[3].ravel(), found[0].ravel()[-12:])


def test_boxes_of_other_forms_are_moved_alike(tmp_path: Path) -> None:
    image: dict[str, Any] = {"size": 40, "crop": "random", "flip": True}
    flat = [[number for box in one for number in box] for one in BOXES]
    one_each = np.array([one[0] if one else [0, 0, 1, 1] for one in BOXES], np.float32)
    fixed = np.stack([one_each, one_each], 1)
    whole = [[[round(number) for number in box] for box in one] for one in BOXES]
    structs = [{"bbox": one, "label": len(one)} for one in BOXES]
    same = dict.fromkeys(["boxes", "flat", "one_each", "fixed", "whole", "objects.bbox"], "xyxy")
    columns = {
        "image": IMAGES,
        "boxes": BOXES,
        "flat": flat,
        "one_each": one_each,
        "fixed": fixed,
        "whole": whole,
        "objects": structs,
    }
    found = loaded(tmp_path, columns, {**image, "same": same})
    values = found["boxes"][0]
    np.testing.assert_array_equal(found["flat"][0], values)
    np.testing.assert_array_equal(found["whole"][0], values.astype(np.float32))
    np.testing.assert_array_equal(found["objects"]["bbox"][0], values)
    assert found["objects"]["label"].tolist() == [2, 0, 1, 3]
    np.testing.assert_array_equal(found["fixed"][:, 0], found["one_each"])
    np.testing.assert_array_equal(found["fixed"][:, 1], found["one_each"])
    np.testing.assert_array_equal(found["one_each"][3], values[12:16].astype(np.float32))


def test_the_box_of_the_whole_image_becomes_the_whole_result(tmp_path: Path) -> None:
    columns = {"image": IMAGES, "boxes": [[[0, 0, WIDTH, HEIGHT]]] * 4}
    for image in SPECS:
        batch = loaded(tmp_path, columns, {**image, "same": {"boxes": "xyxy"}})
        height, width = batch["image"].shape[1:3]
        assert batch["boxes"][0].tolist() == [0, 0, width, height] * 4


def test_a_box_outside_the_crop_stays_as_a_box_without_area(tmp_path: Path) -> None:
    boxes = [[[0.0, 0.0, 5.0, 5.0], [30.0, 20.0, 50.0, 40.0]]] * 4
    image: dict[str, Any] = {"size": 30, "crop": "center", "center_fraction": 0.5}
    batch = loaded(
        tmp_path, {"image": IMAGES, "boxes": boxes}, {**image, "same": {"boxes": "xyxy"}}
    )
    for outside, inside in batch["boxes"][0].reshape(4, 2, 4):
        assert outside.tolist() == [0, 0, 0, 0]
        assert inside.tolist() == [5, 5, 25, 25]


def test_flipping_twice_restores_the_image(tmp_path: Path) -> None:
    boxes = pa.array(BOXES, FORMS["lists of four"])
    image: dict[str, Any] = {"flip": True, "same": {"boxes": "xyxy"}}
    how: dict[str, Any] = {"ragged": "list"}
    once = loaded(tmp_path, {"image": IMAGES, "boxes": boxes}, image, **how)["boxes"]
    assert [one.tolist() for one in once] != BOXES
    flipped = pa.array([one.tolist() for one in once], FORMS["lists of four"])
    twice = loaded(tmp_path, {"image": IMAGES, "boxes": flipped}, image, **how)["boxes"]
    assert [one.tolist() for one in twice] == BOXES


@settings(max_examples=40, deadline=None)
@given(
    corners=st.tuples(st.integers(0, 78), st.integers(0, 58)),
    far=st.tuples(st.integers(1, 80), st.integers(1, 60)),
    size=st.tuples(st.integers(20, 90), st.integers(20, 90)),
    key=st.integers(0, 50),
)
def test_a_mask_drawn_from_a_box_agrees_with_the_box(
    corners: tuple[int, int],
    far: tuple[int, int],
    size: tuple[int, int],
    key: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    left, top = corners
    right, bottom = max(far[0], left + 1), max(far[1], top + 1)
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[top:bottom, left:right] = 1
    columns = {
        "image": IMAGES[:1],
        "mask": [png(mask)],
        "boxes": [[[float(n) for n in (left, top, right, bottom)]]],
    }
    image: dict[str, Any] = {"size": size, "crop": "random", "flip": True}
    same = {"mask": "nearest", "boxes": "xyxy"}
    batch = loaded(tmp_path_factory.mktemp("d"), columns, {**image, "same": same}, seed=key)
    x1, y1, x2, y2 = batch["boxes"][0]
    rows, across = np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5
    inside = np.outer((rows > y1) & (rows < y2), (across > x1) & (across < x2))
    sure = np.outer(
        (abs(rows - y1) > 1e-9) & (abs(rows - y2) > 1e-9),
        (abs(across - x1) > 1e-9) & (abs(across - x2) > 1e-9),
    )
    np.testing.assert_array_equal(batch["mask"][0][sure], inside[sure])


def test_missing_lists_are_empty_and_missing_numbers_are_filled(tmp_path: Path) -> None:
    boxes: list[Any] = [[[1.0, 2.0, 3.0, 4.0]], None, [[5.0, None, 7.0, 8.0]], []]
    columns = {"image": IMAGES, "boxes": pa.array(boxes, FORMS["lists of lists"])}
    image: dict[str, Any] = {"size": (HEIGHT, WIDTH), "same": {"boxes": "xyxy"}}
    with pytest.raises(ps.SchemaError, match="value is missing") as caught:
        loaded(tmp_path, columns, image)
    assert (caught.value.record, caught.value.field) == (2, "boxes")
    values, _, outer = loaded(tmp_path, columns, image, fill={"boxes": -1})["boxes"]
    assert values.tolist() == [1, 2, 3, 4, 5, -1, 7, 8]
    assert outer.tolist() == [0, 1, 1, 2, 2]


def test_a_list_that_is_not_a_box_is_an_error_with_its_record(tmp_path: Path) -> None:
    boxes = [[[1.0, 2.0, 3.0, 4.0]], [], [[5.0, 6.0]], []]
    with pytest.raises(ps.SchemaError, match=r"list of 2 numbers.*boxes of four") as caught:
        loaded(tmp_path, {"image": IMAGES, "boxes": boxes}, {"size": 8, "same": {"boxes": "xyxy"}})
    assert (caught.value.record, caught.value.field) == (2, "boxes")


def sized(boxes: list[list[float]]) -> list[list[float]]:
    return [[x1, y1, x2 - x1, y2 - y1] for x1, y1, x2, y2 in boxes]


BOX_TYPES = [pa.list_(pa.float64()), pa.list_(pa.float32(), 4), pa.list_(pa.int32())]


@pytest.mark.parametrize("type_", BOX_TYPES, ids=str)
@pytest.mark.parametrize("image", SPECS, ids=str)
def test_boxes_of_coco_are_moved_in_lists_of_structs(
    image: dict[str, Any], type_: pa.DataType, tmp_path: Path
) -> None:
    objects = [
        [{"bbox": box, "category": n} for n, box in enumerate(sized(boxes))] for boxes in BOXES
    ]
    kind = pa.list_(pa.struct([("category", pa.int64()), ("bbox", type_)]))
    columns = {
        "image": IMAGES,
        "boxes": BOXES,
        "sized": [sized(boxes) for boxes in BOXES],
        "objects": pa.array(objects, kind),
    }
    same = {"boxes": "xyxy", "sized": "xywh", "objects.bbox": "xywh"}
    batch = loaded(tmp_path, columns, {**image, "same": same})
    expected = batch["boxes"][0].reshape(-1, 4)
    expected[:, 2:] -= expected[:, :2]
    np.testing.assert_allclose(batch["sized"][0].reshape(-1, 4), expected, atol=1e-9)
    assert (expected[:, 2:] >= 0).all()
    found = batch["objects"]
    np.testing.assert_allclose(found["bbox"][0].reshape(-1, 4), expected, rtol=1e-6, atol=1e-5)
    plain = loaded(tmp_path, columns, image)["objects"]
    for offsets, other in zip(found["bbox"][1:], plain["bbox"][1:], strict=True):
        np.testing.assert_array_equal(offsets, other)
    for one, other in zip(found["category"], plain["category"], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_field_of_structs_in_lists_may_be_missing(tmp_path: Path) -> None:
    objects = [[{"bbox": [0, 0, 80, 60]}, None, {"bbox": None}], None, [], [{"bbox": [0, 0, 8, 6]}]]
    kind = pa.list_(pa.struct([("bbox", pa.list_(pa.float32()))]))
    columns = {"image": IMAGES, "objects": pa.array(objects, kind)}
    same = {"objects.bbox": "xywh"}
    found = loaded(tmp_path, columns, {"size": 40, "same": same})["objects"]["bbox"]
    assert found[0].tolist() == [0, 0, 40, 40, 0, 0, 4, 4]
    assert [offsets.tolist() for offsets in found[1:]] == [[0, 4, 4, 4, 8], [0, 3, 3, 3, 4]]


def test_a_broken_box_in_a_list_of_structs_is_an_error_with_its_record(tmp_path: Path) -> None:
    boxes = [[{"bbox": [0.0, 0.0, 1.0, 1.0]}] * 2] * 3 + [[{"bbox": [1.0, 2.0, 3.0]}]]
    columns = {"image": IMAGES, "objects": boxes}
    with pytest.raises(ps.SchemaError, match="cannot hold boxes") as caught:
        loaded(tmp_path, columns, {"size": 40, "same": {"objects.bbox": "xywh"}})
    assert (caught.value.record, caught.value.field) == (3, "objects.bbox")
