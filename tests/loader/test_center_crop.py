"""If a center crop needs no resize of the shorter side, it is a slice of the decoded image."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import penstock as ps

SAVED: dict[str, dict[str, Any]] = {
    "JPEG": {"quality": 90, "subsampling": 2},
    "JPEG progressive": {"quality": 75, "subsampling": 1, "progressive": True},
    "JPEG 4:4:4": {"quality": 100, "subsampling": 0},
    "JPEG grey": {"quality": 90},
    "PNG": {},
    "WEBP": {"quality": 80},
}


def _encoded(kind: str, height: int, width: int, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    rough = random.integers(0, 192, (height // 8 + 1, width // 8 + 1, 3))
    pixels = rough.repeat(8, 0).repeat(8, 1)[:height, :width] + random.integers(
        0, 64, (height, width, 3)
    )
    out = io.BytesIO()
    image = Image.fromarray(pixels.astype(np.uint8)).convert("L" if "grey" in kind else "RGB")
    image.save(out, kind.split(maxsplit=1)[0], **SAVED[kind])
    return out.getvalue()


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(SAVED)),
    size=st.integers(1, 120),
    fraction=st.sampled_from([1.0, 0.875, 0.75, 0.7, 0.5]),
    longer=st.integers(0, 90),
    is_tall=st.booleans(),
    exact=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_center_crop_without_resizing_is_a_slice(
    kind: str, size: int, fraction: float, longer: int, is_tall: bool, exact: bool, seed: int
) -> None:
    # The size to which the shorter side would be resized, rounded as users of torchvision do.
    short = max(round(size / fraction), 1)
    height, width = (short + longer, short) if is_tall else (short, short + longer)
    data = _encoded(kind, height, width, seed)
    whole = np.asarray(ps.decode_images([data], ps.Image())[0])
    how = ps.Image(size, crop="center", center_fraction=fraction, exact=exact)
    found = np.asarray(ps.decode_images([data], how)[0])
    top, left = round((height - size) / 2), round((width - size) / 2)
    np.testing.assert_array_equal(found, whole[top : top + size, left : left + size])
