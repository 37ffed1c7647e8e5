"""The position of a loader, as JSON that loads on any rank of any number of ranks.

| key | what |
|---|---|
| `version` | 1 |
| `epoch` | which epoch, from 0 |
| `position` | how many records of its order all ranks together have seen |
| `order` | the order's name and parameters |
| `seed` | the seed of augmentations |
| `num_records` | records in the dataset |
| `fingerprint` | of the dataset: names, sizes, numbers and checksums of records of its files |
| `class_names` | a digest of the class names, if there are any: see `_class_state.py` |

The order is arithmetic, so nothing else needs to be kept, and resuming costs the same at any position.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from penstock.errors import StateError

VERSION = 1
_END = 1 << 63
"""Exclusive upper bound of counts: no loader has a larger epoch or position."""
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring = 2, 80


def made(epoch: int, position: int, guard: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a loader."""
    return {"version": VERSION, "epoch": epoch, "position": position, **guard}


def loaded(state: Any, guard: Mapping[str, Any], length: int) -> tuple[int, int]:
    """Epoch and position of a state, checked to belong to this loader.

    Raises:
        StateError: it is not a state, or it belongs to another dataset or a different order.
    """
    if not isinstance(state, Mapping):
        raise StateError(f"a state is a dict, as state_dict gives it, not {type(state).__name__}")
    if state.get("version") != VERSION:
        raise StateError(
            "the state is from another version of penstock",
            expected=f"version {VERSION}",
            found=f"version {_SHORT.repr(state.get('version'))}",
        )
    reasons = {
        "num_records": "the state is from a dataset of another size",
        "fingerprint": "the state is from other data, or its files have changed since",
        "order": "the state is from another order, in which its position means nothing",
        "seed": "the state is from another seed of augmentations",
    }
    for key, reason in reasons.items():
        if state.get(key) != guard[key]:
            raise StateError(
                reason,
                expected=guard[key],
                found=_SHORT.repr(state.get(key)),
                hint="make the loader as it was when the state was taken, or begin without a state",
            )
    epoch, position = (_count(state, key) for key in ("epoch", "position"))
    if position > length:
        raise StateError(
            "the position is beyond the end of the epoch", expected=length, found=position
        )
    return epoch, position


def _count(state: Mapping[str, Any], key: str) -> int:
    value = state.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _END:
        raise StateError(f"{key} must be a whole number from 0 on", found=_SHORT.repr(value))
    return value
