"""Hints about npy and npz."""

from __future__ import annotations

import numpy as np
from steps import Case, Cases, rows, twice


def unequal_arrays() -> Case:
    np.savez("a.npz", a=np.arange(3), b=np.arange(2), c=np.arange(3))
    gives = [{"a": value, "c": value} for value in range(3)]
    return twice(rows, "a.npz", arrays=["a", "c"], gives=gives)


CASES: Cases = {
    "f'open(..., arrays={most[:8]!r})'": unequal_arrays,
}
