"""The position of a loader, as JSON that loads on any rank of any number of ranks.

| key | what |
|---|---|
| `version` | 1 |
| `epoch` | which epoch, from 0 |
| `position` | how many records of the order all ranks together have seen |
| `order` | the order's name and parameters |
| `seed` | the seed of augmentations |
| `num_records` | records in the dataset |
| `fingerprint` | of the dataset: its files' names, sizes, record counts and record checksums |
| `class_names` | a digest of the class names, if there are any: see `_class_state.py` |

Orders are computed, so nothing else needs to be stored, and resuming costs the same at any position.
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
    return {"version": VERSION, "epoch": epoch, "position": position, **guard}


def loaded(state: Any, guard: Mapping[str, Any], length: int) -> tuple[int, int]:
    """Return the epoch and position of a state. Raise StateError if it does not belong to this loader."""
    if not isinstance(state, Mapping):
        raise StateError(f"a state is a dict from state_dict, not {type(state).__name__}")
    if state.get("version") != VERSION:
        raise StateError(
            "the state is from another version of penstock",
            expected=f"version {VERSION}",
            found=f"version {_SHORT.repr(state.get('version'))}",
        )
    reasons = {
        "num_records": "the state is from a dataset with a different number of records",
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
                hint="make the loader as it was when the state was saved, or begin without a state",
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
        raise StateError(
            f"{key} of the state must be a whole number, 0 or more", found=_SHORT.repr(value)
        )
    return value
