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
| `buckets` | with buckets, how many records of each all ranks together have seen |

Orders are computed, so nothing else needs to be stored, and resuming costs the same at any position.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from penstock.errors import StateError
from penstock.loader import _class_state as class_state
from penstock.loader._class_state import Known
from penstock.loader._sequence import RecordSequence
from penstock.loader._sources import Records
from penstock.orders import spec_until

VERSION = 1
_END = 1 << 63
"""Exclusive upper bound of counts: no loader has a larger epoch or position."""
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlist = 3, 80, 20


def guard_of(records: Records, sequence: RecordSequence, seed: int, known: Known) -> dict[str, Any]:
    """What has to be equal in the loader that loads a state. `known`: the class names."""
    names = {"class_names": class_state.in_state(known)} if known else {}
    return {
        "order": sequence.spec(),
        "seed": seed,
        "num_records": len(records),
        "fingerprint": records.fingerprint,
        **names,
    }


def made(epoch: int, place: Mapping[str, Any], guard: Mapping[str, Any]) -> dict[str, Any]:
    """`place`: `RecordSequence.state` at the position."""
    return {"version": VERSION, "epoch": epoch, "position": 0, **guard, **place}


def loaded(
    state: Any, guard: Mapping[str, Any], sequence: RecordSequence, known: Known
) -> tuple[int, int]:
    """Return the epoch of a state, and the position at which it continues. Raise StateError if it does not belong to this
    loader."""
    if not isinstance(state, Mapping):
        raise StateError(f"a state is a dict from state_dict, not {type(state).__name__}")
    if "version" not in state:
        raise StateError(
            "this is not the state of a loader",
            expected="a dict from state_dict, with " + ", ".join(made(0, {}, guard)),
            found=f"a dict with {_SHORT.repr(list(state))[1:-1] or 'nothing'}",
            hint="if it is part of a checkpoint, pass that part",
        )
    if state["version"] != VERSION:
        raise StateError(
            "the state is from another version of penstock",
            expected=f"version {VERSION}",
            found=f"version {_SHORT.repr(state['version'])}",
        )
    epoch, position = (_count(state, key) for key in ("epoch", "position"))
    reasons = {
        "num_records": "the state is from a dataset with a different number of records",
        "fingerprint": "the state is from other data, or its files have changed since",
        "order": "the state is from another order, in which its position means nothing",
        "seed": "the state is from another seed of augmentations",
    }
    # Weights of later epochs may be added or changed.
    mine, theirs = ({**one, "order": _until(one.get("order"), epoch)} for one in (guard, state))
    for key, reason in reasons.items():
        if theirs.get(key) != mine[key]:
            expected, found = _difference(mine[key], theirs.get(key))
            raise StateError(
                reason,
                expected=expected,
                found=found,
                hint="make the loader as it was when the state was saved; or leave the state out and begin"
                f" the next epoch with this one: Loader(..., epoch={epoch + bool(position)})",
            )
    if position > sequence.num_records:
        raise StateError(
            "the position is beyond the end of the epoch",
            expected=sequence.num_records,
            found=position,
        )
    class_state.check_state(known, state.get("class_names"))
    return epoch, sequence.resume(epoch, state)


def _until(order: Any, epoch: int) -> Any:
    try:
        return spec_until(order, epoch)
    except (TypeError, LookupError, ValueError):
        return order  # of a state that no loader made


def _difference(mine: Any, other: Any) -> tuple[str, str]:
    """Two values as text. Of two dicts, and of two lists of the same length, only what differs is shown."""
    if isinstance(mine, Mapping) and isinstance(other, Mapping):
        one, two = dict[str, Any](mine), dict[str, Any](other)
        names = [name for name in {**one, **two} if one.get(name) != two.get(name)][:3]
        texts = [_difference(one.get(name), two.get(name)) for name in names]
        mine, other = (
            ", ".join(f"{name} {text[side]}" for name, text in zip(names, texts, strict=True))
            for side in (0, 1)
        )
        return mine, other
    if isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        mine, other = _without_equals(mine, other)
    return _SHORT.repr(mine), _SHORT.repr(other)


def _without_equals(mine: list[Any], other: list[Any]) -> tuple[list[Any], list[Any]]:
    differ = [place for place, value in enumerate(mine) if value != other[place]]
    return [mine[place] for place in differ], [other[place] for place in differ]


def _count(state: Mapping[str, Any], key: str) -> int:
    value = state.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _END:
        raise StateError(
            f"{key} of the state must be a whole number, 0 or more", found=_SHORT.repr(value)
        )
    return value
