"""Hints about HDF5."""

from __future__ import annotations

import h5py
import numpy as np
from steps import Case, Cases, rows, twice

import penstock as ps


def hdf5_name() -> Case:
    def renamed() -> None:
        ps.write({"b": [1]}, "b.h5")
        assert rows("b.h5") == [{"b": 1}]

    return Case(lambda: ps.write({"a/./b": [1]}, "a.h5"), renamed)


def unequal_datasets() -> Case:
    with h5py.File("a.h5", "w") as file:
        for name, count in (("a", 3), ("b", 2), ("c", 3)):
            file[name] = np.arange(count)
    gives = [{"a": value, "c": value} for value in range(3)]
    return twice(rows, "a.h5", datasets=["a", "c"], gives=gives)


CASES: Cases = {
    "'rename it'": hdf5_name,
    "f'open(..., datasets={most[:8]!r}), or names of groups'": unequal_datasets,
}
