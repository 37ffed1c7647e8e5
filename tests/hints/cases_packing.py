"""Hints of packed rows, and of hosts that do not share the same records."""

from __future__ import annotations

from typing import Any

from steps import Case, Cases, apart

import penstock as ps


def an_end_without_a_token() -> Case:
    ps.write({"ids": [[5, 6], [7]], "labels": [[1, 2], [3]]}, "a.parquet")

    def packed(**ends: Any) -> Any:
        return ps.pieces(ps.open("a.parquet"), ["ids", "labels"], 3, **ends)

    def advised() -> None:
        assert packed(eos={"ids": 9, "labels": 8})[0]["labels"] == [1, 2, 8]

    return Case(lambda: packed(eos={"labels": 8}), advised, "eos={'ids': token, ...}")


def lists_of_one_value() -> Case:
    ps.write({"ids": [[5], [6]]}, "a.tfrecord", index=False)

    def packed(**options: Any) -> Any:
        return ps.pieces(ps.open("a.tfrecord", index="never", **options), "ids", 1)

    def advised() -> None:
        assert [row["ids"] for row in packed(types={"ids": "list<int32>"})] == [[5], [6]]

    hint = 'if these are lists of one value, penstock.open(..., types={"ids": "list<int32>"})'
    return Case(packed, advised, hint)


HOSTS = """
import jax, numpy as np
import penstock as ps
from jax.experimental import multihost_utils

ps.write({"a": [1, 2, 3, 4]}, "a.parquet", overwrite=True)
mesh = jax.make_mesh((1,), ("data",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
said = []

def of_process(seed, others):
    jax.process_count = lambda: 2

    def gathered(mine):
        said.append(mine)
        return np.stack([mine, others.pop(0) if others else mine])

    multihost_utils.process_allgather = gathered
    order = ps.Shuffled(seed)
    loader = ps.Loader(ps.open("a.parquet"), 1, order=order, rank=0, world_size=2)
    return [batch["a"].tolist() for batch in loader.jax(sharding=sharding)]

of_process(1, [])
first = said.copy()

def fails():
    of_process(2, first.copy())

def advised():
    assert len(of_process(1, first.copy())) == 2
"""

CASES: Cases = {
    "f'{argument}={{{columns[0]!r}: token, ...}}'": an_end_without_a_token,
    "_hint_of_lists(column, type_)": lists_of_one_value,
    "'the same files, arguments and seeds in all processes. Of damaged files, a host whose index is from before the"
    " damage may count other records: repair them, or share the folder of index='": lambda: apart(
        HOSTS, JAX_PLATFORMS="cpu"
    ),
}
