"""States that no loader made. penstock must refuse them with a message of limited length, or accept them as a
position from which to continue."""

from __future__ import annotations

import functools
import io
import json
import random
from typing import Any

import numpy as np

import penstock as ps
from penstock.storage import MemoryStorage

COUNT = 37
HOSTILE: tuple[Any, ...] = (
    *(None, True, False, "", "0", "x" * 10_000, [], {}, [[[[[]]]]], {"name": {"name": {}}}),
    *(-1, 0, 1, COUNT - 1, COUNT, COUNT + 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**100, -(10**30)),
    *(0.0, 1.5, 1e300, float("nan"), float("inf")),
)


def states() -> list[bytes]:
    """States of both kinds of loaders, at the beginning of an epoch, within it and at its end."""
    return [
        json.dumps({**_loader(kind).state_dict(), "epoch": epoch, "position": position}).encode()
        for kind in (0, 1)
        for epoch, position in ((0, 0), (0, 5), (3, 36), (2, COUNT))
    ]


@functools.cache
def _loader(kind: int) -> ps.Loader:
    file = io.BytesIO()
    np.savez(file, id=np.arange(COUNT))
    storage = MemoryStorage({"s.npz": file.getvalue()})
    order = (ps.Sequential(), ps.Shuffled(seed=2**64 - 1))[kind]
    return ps.Loader(ps.open("s.npz", storage=storage), 4, order=order, threads=0)


def load(data: bytes, rng: random.Random) -> None:
    """Bytes as JSON, some of whose values may be replaced."""
    try:
        state = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(state, dict):
        for key in rng.sample(sorted(state), min(len(state), rng.randrange(3))):
            state[key] = rng.choice(HOSTILE)
    loader = _loader(rng.randrange(2))
    loader.set_epoch(7)
    before = loader.state_dict()
    try:
        loader.load_state_dict(state)
    except ps.StateError as error:
        assert len(str(error)) < 2048, "the message is as long as the state"
        assert loader.state_dict() == before, "half of the state was taken"
        return
    now = loader.state_dict()
    assert (now["epoch"], now["position"]) == (state["epoch"], state["position"])
    assert len(json.dumps(now)) < 1024
    expected = loader.order.take(COUNT, now["epoch"], now["position"], COUNT).tolist()
    assert [int(n) for batch in loader for n in batch["id"]] == expected
    assert loader.epoch == now["epoch"] + 1
