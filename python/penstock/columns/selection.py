"""Types for the records and columns that a caller requests from a reader."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Selection = np.ndarray | None
"""Record numbers within a chunk (int64, in any order, repeats allowed), or None for all."""

Projection = Sequence[str] | None
"""Names of columns in the requested order, or None for all."""
