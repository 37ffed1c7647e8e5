"""`fill=` gives missing images and masks a value in batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps

COUNT = 8
PIXELS = np.random.default_rng(0).integers(0, 256, (COUNT, 12, 16, 3), dtype=np.uint8)
MASKS = np.random.default_rng(1).integers(0, 20, (COUNT, 12, 16, 1), dtype=np.uint8)
MISSING = [2, 5]


def without(images: Any, missing: list[int]) -> pa.Array:
    found = [None if n in missing else one for n, one in enumerate(images)]
    return pa.array(found, pa.binary())


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    """Images of which the last is missing, and masks of which two are missing."""
    encoded = [ps.encode_images(one, "png").to_pylist() for one in (PIXELS, MASKS)]
    table = pa.table(
        {
            "id": np.arange(COUNT),
            "image": without(encoded[0], []),
            "other": without(encoded[0], [7]),
            "mask.png": without(encoded[1], MISSING),
        }
    )
    path = tmp_path_factory.mktemp("missing") / "m.parquet"
    ps.write(table, path)
    return ps.open(path)


def batch_of(data: ps.Dataset, decode: dict[str, Any], **options: Any) -> dict[str, Any]:
    return next(iter(ps.Loader(data, COUNT, decode=decode, **options)))


@pytest.mark.parametrize("crop", ["center", "random"])
def test_a_missing_mask_has_the_value_everywhere(data: ps.Dataset, crop: Any) -> None:
    decode = {"image": ps.Image(8, crop=crop, same={"mask.png": "nearest"})}
    columns = ["id", "image", "mask.png"]
    batch = batch_of(data, decode, fill={"mask.png": 255}, columns=columns)
    assert (batch["mask.png"].dtype, batch["mask.png"].shape) == (np.uint8, (COUNT, 8, 8))
    assert (batch["mask.png"][MISSING] == 255).all()
    there = np.delete(np.arange(COUNT), MISSING)
    assert (batch["mask.png"][there] < 20).all()
    some = data.filter("`mask.png` is not null")
    wanted = next(
        iter(
            ps.Loader(
                some,
                COUNT,
                decode={"image": ps.Image(8, crop="center", same={"mask.png": "nearest"})},
                columns=columns,
            )
        )
    )
    if crop == "center":
        assert np.array_equal(batch["mask.png"][there], wanted["mask.png"])
    with pytest.raises(ps.FormatError, match="null"):
        batch_of(data, decode, columns=columns)


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (ps.Image(8), 114),
        (ps.Image(8, dtype="float32", layout="nchw"), -1.5),
        (ps.Image(8, dtype="bfloat16"), 0),
    ],
)
def test_a_missing_image_has_the_value_everywhere(
    data: ps.Dataset, spec: ps.Image, value: float
) -> None:
    batch = batch_of(data, {"other": spec}, fill={"other": value}, columns=["other"])
    whole = batch_of(data, {"image": spec}, columns=["image"])["image"]
    assert (batch["other"][7] == value).all()
    assert np.array_equal(batch["other"][:7], whole[:7])


def test_other_faults_are_still_reported(tmp_path: Path, data: ps.Dataset) -> None:
    table = data.to_table().to_pydict()
    table["mask.png"][3] = b"not an image"
    ps.write(table, tmp_path / "bad.parquet")
    decode = {"image": ps.Image(8, same={"mask.png": "nearest"})}
    options: dict[str, Any] = {"fill": {"mask.png": 255}, "columns": ["id", "image", "mask.png"]}
    with pytest.raises(ps.FormatError) as caught:
        batch_of(ps.open(tmp_path / "bad.parquet"), decode, **options)
    assert (caught.value.record, caught.value.field) == (3, "mask.png")
    skipping = ps.open(tmp_path / "bad.parquet", damage="skip")
    batch = batch_of(skipping, decode, **options)
    assert batch["id"].tolist() == [0, 1, 2, 4, 5, 6, 7]
    assert (batch["mask.png"][[2, 4]] == 255).all()
    assert len(skipping.damage) == 1


def test_the_records_with_a_mask_can_be_marked(data: ps.Dataset) -> None:
    marked = data.with_columns({"has_mask": "`mask.png` is not null"})
    batch = next(iter(ps.Loader(marked, COUNT, columns=["has_mask"])))
    assert np.flatnonzero(~batch["has_mask"]).tolist() == MISSING


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        (ps.Image(), 0, "one size"),
        (ps.Image(8), "black", "one number"),
        (ps.Image(8), (1, 2, 3), "one number"),
        (ps.Image(8), 256, "does not fit uint8"),
        (ps.Image(8), 0.5, "does not fit uint8"),
        (ps.Image(8, dtype="bfloat16"), 1, "bfloat16"),
    ],
)
def test_other_values_are_refused(
    data: ps.Dataset, spec: ps.Image, value: Any, message: str
) -> None:
    with pytest.raises(ps.SchemaError, match=message) as caught:
        batch_of(data, {"other": spec}, fill={"other": value}, columns=["other"])
    assert caught.value.field == "other"
