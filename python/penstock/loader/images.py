"""`Image`: how a column of encoded images becomes an array of pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.images import decode_images
from penstock.limits import Limits


@dataclass(frozen=True)
class Image:
    """Images decoded as they are: uint8[n, height, width, 3], or a list where sizes differ."""

    def decode(
        self,
        column: pa.Array,
        keys: np.ndarray,
        *,
        threads: int,
        limits: Limits,
        allow_damaged: bool,
    ) -> tuple[Any, list[tuple[int, str]]]:
        """The pixels, and which places hold no image, and why."""
        pixels = decode_images(column, limits=limits, threads=threads, allow_damaged=allow_damaged)
        return pixels, []
