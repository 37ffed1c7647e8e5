"""`ds.with_columns` beside images: in each format that stores them, also if they are read as views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import formats
from penstock.datasets.dataset import Dataset

COUNT = 12
SIZES = [(20 + n, 30 - n) for n in range(COUNT)]
PIXELS = [np.random.default_rng(n).integers(0, 256, (*SIZES[n], 3), np.uint8) for n in range(COUNT)]
HOLD_BYTES = [
    fmt.info.name for fmt in formats.FORMATS if fmt.info.can_write and fmt.info.name != "npy"
]


def opened(folder: Path, name: str, codec: str, numbers: Any = range(COUNT)) -> Dataset:
    images = ps.encode_images(PIXELS, codec)
    info = formats.by_name(name).info
    path = folder / ("images" + (info.extensions[0] if info.extensions else ""))
    labels = np.array(list(numbers), np.int64)
    ps.write({"image": images, "label": labels}, path, format=name, overwrite=True)
    return ps.open(path, format=name)


@pytest.mark.parametrize("codec", ["jpeg", "raw"])
@pytest.mark.parametrize("name", HOLD_BYTES)
def test_computed_columns_and_decoded_images(tmp_path: Path, name: str, codec: str):
    plain = opened(tmp_path, name, codec)
    (picture,) = [field for field in plain.schema.names if "image" in field or field == "jpg"]
    texts = {"wide": f"width({picture})", "twice": f"{_label(plain)} * 2", "other": picture}
    dataset = plain.with_columns(texts)
    image = ps.Image(8)
    how: dict[str, Any] = {"seed": 3, "decode": {picture: image, "other": image}}
    found = next(iter(ps.Loader(dataset, 5, **how)))
    usual = next(iter(ps.Loader(plain, 5, **{**how, "decode": {picture: image}})))
    assert (found[picture] == usual[picture]).all()
    assert (found["other"] == usual[picture]).all()
    numbers = found["twice"] // 2
    assert found["wide"].tolist() == [SIZES[number][1] for number in numbers]
    assert dataset.take([4, 1]).column("wide").to_pylist() == [SIZES[4][1], SIZES[1][1]]


def _label(dataset: Dataset) -> str:
    return next(name for name in dataset.schema.names if "label" in name)


@pytest.mark.parametrize("name", HOLD_BYTES)
@pytest.mark.parametrize("has_overlay", [False, True])
def test_an_error_names_the_record_that_was_taken(tmp_path: Path, name: str, has_overlay: bool):
    numbers = [*range(COUNT - 1), 1000]
    dataset = opened(tmp_path, name, "jpeg", numbers)
    if has_overlay:
        if not formats.by_name(name).info.can_overlay:
            pytest.skip("the format has no overlays")
        ps.add_fields(dataset.paths[0], {"more": np.arange(COUNT)})
        dataset = ps.open(dataset.paths[0], format=name)
    wrong = dataset.take(range(COUNT)).column(_label(dataset)).to_pylist().index(1000)
    good = (wrong + 3) % COUNT
    dataset = dataset.with_columns({"n": f'cast({_label(dataset)}, "int8")'}).select(["n"])
    for asked in ([wrong], [good, wrong], [wrong, good]):
        with pytest.raises(ps.SchemaError) as caught:
            dataset.take(asked)
        assert caught.value.record == wrong
