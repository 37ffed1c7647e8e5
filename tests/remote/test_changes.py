"""An object that is changed while it is read gives the records that it had, or a ChangedError, and never a mixture of
two states."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from reading import sidecar_of
from remote.servers import faults
from remote.servers.fault_proxy import FaultProxy
from remote.servers.seaweed import Seaweed

COUNT = 240
FORMATS = {
    "tfrecord": "x.tfrecord",
    "gzip": "x.tfrecord.gz",
    "tar": "x.tar",
    "parquet": "x.parquet",
    "arrow": "x.arrow",
    "beton": "x.beton",
    "hdf5": "x.h5",
    "npz": "x.npz",
    "msgpack": "x.msgpack",
}
FAST = ("tfrecord", "parquet", "arrow", "hdf5")
"""The formats of the normal run."""


def table(state: int, count: int = COUNT) -> pa.Table:
    rng = np.random.default_rng(state)
    blobs = [rng.bytes(9000) for _ in range(count)]
    return pa.table({"id": range(count), "state": [state] * count, "blob": blobs})


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, tuple[bytes, bytes]]]:
    """The bytes and the index of an object in several states, by the name of its format."""
    folder = tmp_path_factory.mktemp("states")
    made: dict[str, dict[str, tuple[bytes, bytes]]] = {}
    for name, file in FORMATS.items():
        made[name] = {}
        for word, data in (
            ("one", table(1)),
            ("two", table(2)),
            ("longer", table(3, COUNT + 7)),
            ("shorter", table(4, COUNT - 7)),
        ):
            path = folder / f"{word}-{file}"
            ps.write(data, path)
            index = Path(sidecar_of(path))
            made[name][word] = path.read_bytes(), index.read_bytes() if index.exists() else b""
    return made


@dataclass
class Object:
    """An object of a store, and what a test does to it."""

    server: Seaweed
    path: str
    name: str
    states: dict[str, dict[str, tuple[bytes, bytes]]]
    endpoint: str = ""

    @property
    def url(self) -> str:
        return f"s3://{self.path}"

    def become(self, word: str, *, name: str = "", index: str = "") -> None:
        """Take this state, with the index of a state beside it."""
        data = self.states[name or self.name]
        self.server.client.put(self.path, data[word][0])
        if index and data[index][1]:
            self.server.client.put(sidecar_of(self.url).removeprefix("s3://"), data[index][1])

    def empty(self) -> None:
        self.server.client.put(self.path, b"")

    def open(self, **options: Any) -> ps.Dataset:
        return ps.open(
            self.url, storage_options=self.server.options(self.endpoint or None), **options
        )


@pytest.fixture(
    params=[pytest.param(f, marks=() if f in FAST else pytest.mark.stress) for f in FORMATS]
)
def thing(
    request: pytest.FixtureRequest,
    states: dict[str, dict[str, tuple[bytes, bytes]]],
    seaweed: Seaweed,
    prefix: str,
) -> Object:
    made = Object(seaweed, f"{prefix}/{FORMATS[request.param]}", request.param, states)
    made.become("one", index="one")
    return made


def loaded(loader: ps.Loader) -> Iterator[list[int]]:
    for batch in loader:
        yield np.asarray(batch["state"]).tolist()


def scanned(dataset: ps.Dataset) -> Iterator[list[int]]:
    for batch in dataset.scan(columns=["state", "blob"], batch_records=16):
        yield batch["state"].to_pylist()


def taken(dataset: ps.Dataset) -> Iterator[list[int]]:
    rng = random.Random(3)
    for _ in range(12):
        numbers = [rng.randrange(COUNT - 7) for _ in range(20)]
        yield dataset.take(numbers, columns=["state", "blob"])["state"].to_pylist()


def in_order(order: Any) -> Callable[[ps.Dataset], Iterator[list[int]]]:
    def load(dataset: ps.Dataset) -> Iterator[list[int]]:
        return loaded(ps.Loader(dataset, 16, order=order, columns=["state", "blob"]))

    return load


READERS: dict[str, Callable[[ps.Dataset], Iterator[list[int]]]] = {
    "scan": scanned,
    "take": taken,
    "shuffled": in_order(ps.Shuffled(seed=1)),
    "blocked": in_order(ps.Blocked(seed=1)),
}
WAYS: dict[str, Callable[[Object], object]] = {
    "same size": lambda it: it.become("two"),
    "longer": lambda it: it.become("longer"),
    "shorter": lambda it: it.become("shorter"),
    "deleted": lambda it: it.server.client.delete(it.path),
    "another format": lambda it: it.become("two", name="npz" if it.name != "npz" else "tfrecord"),
    "touched": lambda it: it.become("one"),
    "with its index": lambda it: it.become("two", index="two"),
    "before its index": lambda it: it.become("two", index="one"),
    "empty": lambda it: it.empty(),
}


ROTATED = [
    pytest.param(way, reader, marks=() if number % 4 == turn else pytest.mark.stress)
    for number, way in enumerate(WAYS)
    for turn, reader in enumerate(READERS)
]
"""In the normal run, each way under one of the readers."""
each_way = pytest.mark.parametrize(("way", "reader"), ROTATED)


def read(batches: Iterator[list[int]], found: list[int]) -> None:
    for batch in batches:
        found += batch


@each_way
def test_a_change_under_a_reader_mixes_nothing(thing: Object, way: str, reader: str) -> None:
    dataset = thing.open()
    batches = READERS[reader](dataset)
    found = next(batches)
    WAYS[way](thing)
    ended = "well"
    try:
        read(batches, found)
        read(READERS[reader](dataset), found)
    except ps.ChangedError as error:
        ended = "changed"
        assert error.file == thing.url
    assert set(found) == {1}
    assert ended == "well" or way != "touched"
    assert ended == "changed" or way != "deleted" or len(found) >= COUNT


@each_way
def test_a_change_between_open_and_the_first_read_mixes_nothing(
    thing: Object, way: str, reader: str
) -> None:
    dataset = thing.open()
    WAYS[way](thing)
    found: list[int] = []
    with contextlib.suppress(ps.ChangedError):
        read(READERS[reader](dataset), found)
    assert set(found) <= {1}
    assert found or way != "touched"
    if way in ("same size", "longer", "shorter", "with its index", "before its index"):
        again: list[int] = []
        read(
            READERS[reader](thing.open()), again
        )  # a new dataset has the new state, whatever its index
        assert len(set(again)) == 1
        assert set(again) != {1}


@pytest.fixture(scope="module")
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        yield proxy


def replaced_between_ranges(thing: Object, proxy: FaultProxy, seed: int) -> None:
    """Replace the object before one of the requests for its bytes, by another of the same size."""
    rng = random.Random(seed)
    proxy.heal()
    thing.endpoint = proxy.endpoint
    thing.become("one", index="one")
    rule = proxy.add(
        faults.call(lambda _: thing.become("two", index=rng.choice(["", "two"]))),
        method="GET", key=f"/{thing.path.rsplit('/', 1)[1]}$", ranged=True, nth=[rng.randint(1, 6)],
    )  # fmt: skip
    found: list[int] = []
    try:
        dataset = thing.open()
        for name in rng.sample(list(READERS), 2):
            read(READERS[name](dataset), found)
    except ps.ChangedError:
        assert rule.fired
    assert len(set(found)) <= 1


def test_an_object_replaced_between_two_ranges_is_never_a_mixture(
    thing: Object, proxy: FaultProxy
) -> None:
    for seed in range(8):
        replaced_between_ranges(thing, proxy, seed)


@pytest.mark.stress
@pytest.mark.parametrize("part", range(12))
def test_a_thousand_objects_replaced_between_two_ranges(
    part: int, thing: Object, proxy: FaultProxy
) -> None:
    for seed in range(10 * part, 10 * part + 10):
        replaced_between_ranges(thing, proxy, 1000 + seed)
