"""Two processes of JAX on this machine: the parts of a global array have the same shapes, or are refused."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import penstock as ps

pytest.importorskip("jax")

PROGRAM = """
import sys
import jax
import numpy as np
import penstock as ps

rank, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, num_processes=2, process_id=rank)
mesh = jax.make_mesh((2,), ("data",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
WAYS = {
    "offsets": {},
    "pad": {"ragged": "pad"},
    "pad_to": {"pad_to": {"tokens": 8}},
    "buckets": {"buckets": {"tokens": [2, 4]}, "uneven": "pad"},
    "map": {"ragged": "pad", "map": lambda batch: {"tokens": batch["tokens"]}},
    "alike": {"ragged": "pad", "map": lambda batch: {"tokens": batch["tokens"][:, :1]}},
}
columns = ["tokens"]


def loader_of(source="t.tfrecord", **options):
    ranks = {"rank": rank, "world_size": 2, **options}
    data = ps.open(source) if isinstance(source, str) else source
    return ps.Loader(data, 2, columns=columns, **ranks)


def packed(index):
    documents = ps.open("d.tfrecord", damage="skip", index=index)
    return ps.packed(documents, "tokens", 4)


LOADERS = {how: loader_of(**options) for how, options in WAYS.items()} | {
    "other packing": loader_of(packed(f"index-{rank}"), drop_last=True),
    "same packing": loader_of(packed("index-0"), drop_last=True),
    "other seed": loader_of(packed("index-0"), drop_last=True, order=ps.Shuffled(rank)),
    "own packing": loader_of(packed(f"index-{rank}").subset(range(4)), rank=0, world_size=1),
}
for how, loader in LOADERS.items():
    print("way", how)
    try:
        shapes = []
        for batch in loader.jax(sharding=sharding):
            shapes.append(batch["tokens"].shape)
            total = jax.jit(lambda tokens: tokens.sum())(batch["tokens"])
            print("sum", int(total))
        print("shapes", shapes)
    except ps.SchemaError as error:
        print("refused", error.field, error.hint)
    except ps.StateError as error:
        print("refused", error)
"""


WORDS = ("sum", "shapes", "refused")
# What each process said of a way to make batches, by the name of the way.
Said = dict[str, str]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[Said]:
    """What each of two processes says of every way: they are started once, because that takes longest."""
    folder = tmp_path_factory.mktemp("processes")
    # In each step, rank 0 has the first two records and rank 1 has the other two, whose lists are
    # longer.
    lists = [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]] * 2 + [[7], [7, 8, 9]]
    ps.write({"tokens": lists}, folder / "t.tfrecord")
    write_damaged(folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "", "CUDA_VISIBLE_DEVICES": ""}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), address],
            cwd=folder,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    try:
        return [told_of(*one.communicate(timeout=240)) for one in running]
    finally:
        for one in running:
            one.kill()
            one.wait()


def write_damaged(folder: Path) -> None:
    """Write documents and an index with their lengths, and then damage one of them, as a disk does."""
    path = folder / "d.tfrecord"
    ps.write({"tokens": [[n] * 5 for n in range(20)]}, path)
    ps.packed(ps.open(path, index=folder / "index-1"), "tokens", 4)
    before, data = path.stat(), bytearray(path.read_bytes())
    data[-6] ^= 1  # in the last record
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def told_of(out: str, err: str) -> Said:
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in out.splitlines():
        word, _, rest = line.partition(" ")
        if word == "way":
            lines = found.setdefault(rest, [])
        elif word in WORDS:
            lines.append(line)
    assert len(found) == 10 and all(found.values()), err[-3000:]
    return {way: "\n".join(lines) for way, lines in found.items()}


def test_fixed_lengths_give_all_processes_the_same_arrays(said: list[Said]) -> None:
    one, other = (told["pad_to"] for told in said)
    assert one == other
    assert one.splitlines()[-1] == "shapes [(4, 8), (4, 8), (2, 8)]"


def test_buckets_give_all_processes_the_same_arrays(said: list[Said]) -> None:
    one, other = (told["buckets"] for told in said)
    assert one == other
    shapes = re.findall(r"\(\d+, \d+\)", one.splitlines()[-1])
    assert Counter(shapes) == {"(4, 2)": 2, "(4, 4)": 2}


@pytest.mark.parametrize("how", ["pad", "offsets"])
def test_lists_that_each_process_would_pad_for_itself_are_refused(
    said: list[Said], how: str
) -> None:
    for told in said:
        assert told[how].startswith("refused tokens pad_to={'tokens': length}"), told


def test_shapes_that_a_function_makes_are_compared(said: list[Said]) -> None:
    assert all(told["map"].startswith("refused") for told in said)
    one, other = (told["alike"] for told in said)
    assert one == other and one.splitlines()[-1] == "shapes [(4, 1), (4, 1), (2, 1)]"


@pytest.mark.parametrize("how", ["other packing", "other seed"])
def test_processes_that_would_read_other_records_are_refused(said: list[Said], how: str) -> None:
    for told in said:
        assert told[how].startswith("refused the processes read other data"), told


def test_processes_may_share_their_records_or_have_their_own(said: list[Said]) -> None:
    for how in ("same packing", "own packing"):
        one, other = (told[how].splitlines()[-1] for told in said)
        assert one == other and one.startswith("shapes [(4, 4), "), said
