"""Types for the records of a chunk, and the columns, that a caller requests from a reader."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Selection = np.ndarray | None
"""Record numbers within a chunk (int64, any order, repeats allowed), or None for all of them."""

Projection = Sequence[str] | None
"""Names of the wanted columns in the wanted order, or None for all columns."""
