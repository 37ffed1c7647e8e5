"""Meshes of two processes with two devices each: the rows that the devices need give the ranks, or fit them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import penstock as ps

pytest.importorskip("jax")

PROGRAM = """
import json, sys, warnings
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import penstock as ps

process, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, num_processes=2, process_id=process)
warnings.simplefilter("ignore")
devices = np.array(jax.devices())
by_host = devices.reshape(2, 2)
hosts_first = Mesh(by_host, ("data", "other"))  # the data axis lies across the hosts
hosts_last = Mesh(by_host.T, ("data", "other"))  # the other axis does
line = Mesh(devices, ("data",))
data = P("data")


def on(mesh, *spec):
    return NamedSharding(mesh, P(*spec))


def loaded(source="t.tfrecord", batch_size=4, **options):
    options = {"rank": "auto", "record_numbers": "number", "drop_last": True, **options}
    return ps.Loader(ps.open(source), batch_size, order=ps.Shuffled(0), pad_to={"tokens": 6}, **options)


def elsewhere():
    loader = loaded()
    if process:
        next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    return loader


WAYS = {
    "data": lambda: loaded().jax(on(line, "data")),
    "two axes": lambda: loaded().jax(on(hosts_first, ("data", "other"))),
    "model": lambda: loaded().jax(on(hosts_last, "data")),
    "sequence": lambda: loaded().jax(on(hosts_last, "data", "other")),
    "local sequence": lambda: loaded().jax(on(hosts_first, "data", "other")),
    "everywhere": lambda: loaded().jax(on(line)),
    "alternating": lambda: loaded().jax(on(Mesh(devices[[0, 2, 1, 3]], ("data",)), "data")),
    "buckets": lambda: ps.Loader(
        ps.open("t.tfrecord"), 4, buckets={"tokens": [3, 6]}, uneven="pad", rank="auto", record_numbers="number"
    ).jax(on(hosts_last, "data")),
    "own devices": lambda: loaded().jax(on(Mesh(jax.local_devices(), ("data",)), "data")),
    "own files": lambda: loaded(f"own-{process}.tfrecord", rank=0, world_size=1).jax(on(line, "data")),
    "given for a model axis": lambda: loaded(rank=process, world_size=2).jax(on(hosts_last, "data")),
    "given twice": lambda: loaded(rank=0, world_size=2).jax(on(line, "data")),
    "not given": lambda: loaded(rank=ps.Loader.__init__.__wrapped__.__kwdefaults__["rank"]).jax(on(line, "data")),
    "all records each": lambda: loaded(rank=0, world_size=1).jax(on(line, "data")),
    "replicas of own files": lambda: loaded(f"own-{process}.tfrecord").jax(on(line)),
    "other position": lambda: elsewhere().jax(on(line, "data")),
    "unequal": lambda: loaded().jax(on(Mesh(devices[:3], ("data",)), "data")),
    "one host": lambda: loaded().jax(on(Mesh(devices[:2], ("data",)), "data")),
    "last batch": lambda: loaded(drop_last=False).jax(on(line, "data")),
    "batch size": lambda: loaded(batch_size=3).jax(on(line, "data")),
}


def parts_of(array):
    return [[[one.indices(size)[:2] for one, size in zip(part.index, array.shape)], np.asarray(part.data).tolist()]
            for part in array.addressable_shards]


for way, made in WAYS.items():
    told = []
    try:
        batches = made()
        told = [{name: [array.shape, parts_of(array)] for name, array in batch.items()} for batch in batches]
        found = {"ranks": [batches.loader.rank, batches.loader.plan.world_size], "batches": told}
    except (ps.PenstockError, ValueError) as error:
        assert not told
        found = {"error": f"{type(error).__name__}: {error}"}
    print("told", json.dumps([way, found]), flush=True)
"""
COUNT = 37
LISTS = [[n + 1] * (n % 6 + 1) for n in range(COUNT)]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process says of every way: they are started once, because that takes longest."""
    folder = tmp_path_factory.mktemp("meshes")
    ps.write({"tokens": LISTS}, folder / "t.tfrecord")
    for process in range(2):
        ps.write(
            {"tokens": [[100 * process + n] for n in range(8)]}, folder / f"own-{process}.tfrecord"
        )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = "--xla_force_host_platform_device_count=2"
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "CUDA_VISIBLE_DEVICES": ""}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(process), address],
            cwd=folder,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for process in range(2)
    ]
    try:
        found = []
        for one in running:
            out, err = one.communicate(timeout=240)
            assert one.returncode == 0, out[-2000:] + err[-3000:]
            lines = [
                line.removeprefix("told ") for line in out.splitlines() if line.startswith("told ")
            ]
            found.append(dict(json.loads(line) for line in lines))
        return found
    finally:
        for one in running:
            one.kill()
            one.wait()


def joined(said: list[dict[str, Any]], way: str) -> list[dict[str, np.ndarray]]:
    """The global arrays of each batch, put together from the parts of both processes, which are equal where they are of
    the same place."""
    of_hosts = [told[way]["batches"] for told in said]
    assert len(of_hosts[0]) == len(of_hosts[1]) > 0
    batches = []
    for hosts in zip(*of_hosts, strict=True):
        whole: dict[str, np.ndarray] = {}
        for name, (shape, _) in hosts[0].items():
            values, known = np.full(shape, -1), np.zeros(shape, bool)
            for host in hosts:
                assert host[name][0] == shape
                for places, part in host[name][1]:
                    at = tuple(slice(*place) for place in places)
                    assert not known[at].any() or (values[at] == part).all(), (way, name)
                    values[at], known[at] = part, True
            assert known.all()
            whole[name] = values
        batches.append(whole)
    return batches


def check_rows(batch: dict[str, np.ndarray], length: int) -> None:
    """Each row has the tokens of one record, and no record comes twice."""
    numbers = batch["number"].tolist()
    assert len(set(numbers)) == len(numbers) == length
    wanted = [(LISTS[n] + [0] * 6)[: batch["tokens"].shape[1]] for n in numbers]
    assert batch["tokens"].tolist() == wanted


SHARED = {"data", "two axes", "local sequence", "alternating"}


@pytest.mark.parametrize("way", [*sorted(SHARED), "model", "sequence", "everywhere"])
def test_the_rank_follows_from_the_rows_that_the_devices_need(
    said: list[dict[str, Any]], way: str
) -> None:
    world_size = 2 if way in SHARED else 1
    ranks = [[0, 2], [1, 2]] if way in SHARED else [[0, 1], [0, 1]]
    assert [told[way]["ranks"] for told in said] == ranks
    batches = joined(said, way)
    assert len(batches) == COUNT // (4 * world_size)
    for batch in batches:
        check_rows(batch, 4 * world_size)
    every = np.concatenate([batch["number"] for batch in batches]).tolist()
    assert len(set(every)) == len(every)


def test_buckets_follow_the_ranks_too(said: list[dict[str, Any]]) -> None:
    assert [told["buckets"]["ranks"] for told in said] == [[0, 1], [0, 1]]
    batches = joined(said, "buckets")
    assert {batch["tokens"].shape for batch in batches} == {(4, 3), (4, 6)}
    every = np.concatenate([batch["number"][batch["mask"] == 1] for batch in batches])
    assert sorted(every.tolist()) == list(range(COUNT))


def test_arrays_of_one_process_keep_the_rank_of_the_process(said: list[dict[str, Any]]) -> None:
    assert [told["own devices"]["ranks"] for told in said] == [[0, 2], [1, 2]]
    numbers = [
        n
        for told in said
        for batch in told["own devices"]["batches"]
        for _, part in batch["number"][1]
        for n in part
    ]
    assert len(numbers) == len(set(numbers)) == 32


def test_processes_may_have_files_of_their_own(said: list[dict[str, Any]]) -> None:
    first, second = (batch["tokens"][:, 0].tolist() for batch in joined(said, "own files"))
    assert sorted(first + second) == [*range(8), *range(100, 108)]
    assert all(value < 100 for value in first[:4]) and all(value >= 100 for value in first[4:])


def test_a_process_without_a_device_in_the_mesh_is_refused(said: list[dict[str, Any]]) -> None:
    alone, absent = (told["one host"] for told in said)
    assert alone["ranks"] == [0, 2]
    assert absent["error"].startswith("ValueError: the sharding has no device of process 1")


@pytest.mark.parametrize(
    ("way", "error"),
    [
        (
            "given for a model axis",
            "StateError: the rank of process 0 does not fit|rank 0 of 1|rank=0, world_size=1",
        ),
        (
            "given twice",
            "StateError: the rank of process 1 does not fit|rank 1 of 2|found rank 0 of 2",
        ),
        (
            "not given",
            'StateError: the rank of process 0 does not fit|rank="auto"|files of its own',
        ),
        ("all records each", 'StateError: each process reads all records|rank="auto"'),
        ("replicas of own files", "StateError: the processes read other data"),
        ("other position", "StateError: the processes read other data|begin at other positions"),
        ("unequal", "ValueError: |not equally many"),
        (
            "last batch",
            "SchemaError: a batch of 3 records on each of 2 ranks|2 equal parts|uneven=",
        ),
        ("batch size", "SchemaError: a batch of 3 records|batch_size that is a multiple of 2"),
    ],
)
def test_contradictions_are_refused_before_the_first_batch(
    said: list[dict[str, Any]], way: str, error: str
) -> None:
    for told in said:
        found = told[way].get("error", "")
        assert found.startswith(error.split("|", maxsplit=1)[0]), told[way]
        assert all(words in found for words in error.split("|")), found
