"""Fills the places of missing images and masks in a batch: `fill={"mask": 255}` of `ps.Loader`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

import numpy as np

from penstock.errors import SchemaError
from penstock.loader._image_batches import ImageFault
from penstock.loader.images import Image


def check_fills(fill: Mapping[str, Any], decode: Mapping[str, Any] | None) -> None:
    """Refuse a value that is not a number, for columns that `decode` makes images of.

    Raises:
        SchemaError: the value is not a number, or the images have no fixed size or cannot hold it.
    """
    for name, spec in (decode or {}).items():
        if not isinstance(spec, Image):
            continue
        for path in fill.keys() & {name, *(spec.same or ())}:
            _check(path, fill[path], spec, is_main=path == name)


def _check(path: str, value: Any, spec: Image, *, is_main: bool) -> None:
    if not isinstance(value, Real) or isinstance(value, (bool, np.bool_)):
        raise SchemaError(
            f"fill= is one number for all pixels of a missing image, not {value!r}", field=path
        )
    if spec.height_width is None:
        raise SchemaError(
            "fill= needs images of one size",
            field=path,
            hint="ps.Image(size), such as ps.Image(224)",
        )
    if is_main and spec.dtype == "bfloat16" and value:
        raise SchemaError("fill= of bfloat16 images is 0", field=path)


def filled(
    made: Any, faults: list[ImageFault], nulls: Collection[int], value: Any, path: str
) -> list[ImageFault]:
    """Write the value to the places of missing images (`nulls`), and return the faults of the others."""
    places = [fault.place for fault in faults if fault.place in nulls]
    if not places:
        return faults
    if np.asarray(value).astype(made.dtype) != value and made.dtype.kind in "iu":
        raise SchemaError(f"the value {value} of fill= does not fit {made.dtype}", field=path)
    made[places] = value
    return [fault for fault in faults if fault.place not in nulls]
