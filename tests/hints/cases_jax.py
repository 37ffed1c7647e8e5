"""Cases for the hints of `Loader.jax`, most of them of two processes that share a mesh."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys

from steps import Case, Cases, apart

import penstock as ps

# Two processes with a device each. They run all cases in one go, because to start them takes longest.
TWO = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import penstock as ps

process, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, num_processes=2, process_id=process)
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
numbers, lists = ps.open("a.parquet"), ps.open("b.parquet")

def shapes(data, **options):
    options = {"rank": "auto", "order": ps.Shuffled(0), **options}
    return [batch["a"].shape for batch in ps.Loader(data, 2, **options).jax(sharding=sharding)]

def repeated(width):
    return lambda batch: {"a": np.repeat(batch["a"][:, None], width(batch["a"]), 1)}

CASES = {
    "shapes": (lambda: shapes(numbers, map=repeated(lambda a: int(a[0]))), lambda: shapes(numbers, map=repeated(lambda a: 3))),
    "padding": (lambda: shapes(lists, ragged="pad"), lambda: shapes(lists, pad_to={"a": 3})),
    "seeds": (lambda: shapes(numbers, order=ps.Shuffled(process)), lambda: shapes(numbers)),
    "same rank": (lambda: shapes(numbers, rank=0, world_size=2), lambda: shapes(numbers)),
    "all records": (lambda: shapes(numbers, rank=0, world_size=1), lambda: shapes(numbers)),
}
for name, (fails, advised) in CASES.items():
    try:
        fails()
    except ps.PenstockError as error:
        print("told", json.dumps([name, error.hint, advised()]), flush=True)
"""


@functools.cache
def said() -> dict[str, tuple[str, list[list[int]]]]:
    """The hint of each case, and the shapes of the batches that one gets by following it."""
    ps.write({"a": [1, 2, 3, 4, 5, 6, 7, 8]}, "a.parquet")
    ps.write({"a": [[1] * (n % 3 + 1) for n in range(8)]}, "b.parquet")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    one_device = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "CUDA_VISIBLE_DEVICES": ""}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, str(process), address],
            env={**os.environ, **one_device},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for process in range(2)
    ]
    try:
        (out, err), other = (one.communicate(timeout=240) for one in running)
        assert all(one.returncode == 0 for one in running), err[-3000:] + other[1][-3000:]
    finally:
        for one in running:
            one.kill()
            one.wait()
    lines = [line.removeprefix("told ") for line in out.splitlines() if line.startswith("told ")]
    return {name: (hint, shapes) for name, hint, shapes in map(json.loads, lines)}


def of_two(name: str, shape: list[int]) -> Case:
    def fails() -> None:
        raise ps.PenstockError("in the other process", hint=said()[name][0])

    def advised() -> None:
        assert said()[name][1] == [shape, shape]

    return Case(fails, advised)


def shapes_that_differ() -> Case:
    return of_two("shapes", [4, 3])


def padding_of_two_processes() -> Case:
    text = "pad_to={'a': length} of Loader, which gives every batch the same shape"
    return of_two("padding", [4, 3])._replace(hint=text)


def other_seeds() -> Case:
    return of_two("seeds", [4])


def one_rank_twice() -> Case:
    return of_two("same rank", [4])


def the_same_records() -> Case:
    return of_two("all records", [4])


OF_ONE = """
import jax, numpy as np
import penstock as ps
from jax.sharding import Mesh, NamedSharding, PartitionSpec

ps.write({"id": [1, 2 + 2**40], "a": [[1, 2, 3], [4, 5, 6]]}, "a.arrow", overwrite=True)
mesh = Mesh(np.array(jax.devices()), ("data",))

def batch(*spec, **options):
    sharding = NamedSharding(mesh, PartitionSpec(*spec)) if spec else None
    (found,) = ps.Loader(ps.open("a.arrow"), 2, **options).jax(sharding=sharding)
    return {name: np.asarray(column).tolist() for name, column in found.items()}
"""

DIVIDED = f"""{OF_ONE}
def fails():
    batch(None, "data", columns=["a"], pad_to={{"a": 3}})

def advised():
    assert batch(None, "data", columns=["a"], pad_to={{"a": 4}}) == {{"a": [[1, 2, 3, 0], [4, 5, 6, 0]]}}
    assert batch("data", columns=["a"], pad_to={{"a": 3}}) == {{"a": [[1, 2, 3], [4, 5, 6]]}}
"""

WIDE = f"""{OF_ONE}
def fails():
    batch(columns=["id"])

def advised():
    assert batch(columns=["a"], pad_to={{"a": 3}}) == {{"a": [[1, 2, 3], [4, 5, 6]]}}
    jax.config.update("jax_enable_x64", True)
    assert batch(columns=["id"]) == {{"id": [1, 2 + 2**40]}}
"""


def an_axis_that_does_not_divide() -> Case:
    flag = "--xla_force_host_platform_device_count=2"
    return apart(DIVIDED, XLA_FLAGS=flag, JAX_PLATFORMS="cpu")


def numbers_beyond_32_bits() -> Case:
    return apart(WIDE, JAX_PLATFORMS="cpu")


CASES: Cases = {
    "'uneven=\"pad\" if damaged records are skipped, Image(size=...), pad_to=..., or a map whose results always have the same shape'": shapes_that_differ,
    "'the same files, arguments, seeds and states in all processes that share their records. Of damaged files, a host whose index is from before the damage may count other records: repair them, or share the folder of index='": other_seeds,
    "'rank=\"auto\", which takes both from the sharding'": one_rank_twice,
    "'rank=\"auto\", which divides the records. If each process has files of its own that only look the same, give their orders different seeds'": the_same_records,
    "'a PartitionSpec whose axes divide the shape, or columns= without this column'": an_axis_that_does_not_divide,
    "'jax.config.update(\"jax_enable_x64\", True), or leave the column out with columns='": numbers_beyond_32_bits,
}
