"""Every order in the loader, over several formats: the records match the order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps

COUNT = 600
ORDERS = [
    ps.Sequential(),
    ps.Shuffled(3),
    ps.Blocked(3, window_chunks=3),
    ps.Blocked(3, window_chunks=None, window_records=100),
    ps.Interleaved(2, 5, seed=1),
    ps.Buffered(3, 50),
    ps.Weighted(np.arange(COUNT), 3),
    ps.Balanced(np.arange(COUNT) % 7, 3),
]


@pytest.fixture(scope="module", params=["tfrecord", "parquet", "tar"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    folder = tmp_path_factory.mktemp("orders")
    texts = pa.array([f"record {n}".encode() for n in range(COUNT)])
    table = pa.table({"id": pa.array(range(COUNT)), "text": texts})
    if request.param == "parquet":
        for shard in range(3):
            part = table.slice(shard * 200, 200)
            pq.write_table(part, folder / f"{shard}.parquet", row_group_size=32)
    elif request.param == "tar":
        table = table.set_column(0, "id.txt", pa.array([str(n).encode() for n in range(COUNT)]))
        ps.write(table, folder / "x.tar", num_shards=3)
    else:
        ps.write(table, folder / "x.tfrecord", num_shards=3)
    return ps.open(folder)


def ids(batch: dict[str, Any]) -> list[int]:
    return [int(n) for n in batch["id" if "id" in batch else "id.txt"]]


def expected(ds: ps.Dataset, order: Any, epoch: int = 0) -> list[int]:
    lengths: dict[str, Any] = {}
    if order.layout == "shard_lengths":
        lengths = {"shard_lengths": [200, 200, 200]}
    if order.layout == "chunk_lengths":
        chunks = [c for shard in range(3) for c in ds.files.reader(shard).chunks()]
        lengths = {"chunk_lengths": [c.num_records for c in chunks]}
    count = order.length(COUNT)
    return order.take(COUNT, epoch, 0, count, **lengths).tolist()


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_the_loader_gives_what_the_order_says(dataset: ps.Dataset, order: Any) -> None:
    loader = ps.Loader(dataset, 64, order=order, threads=2)
    for epoch in range(2):
        assert [n for batch in loader for n in ids(batch)] == expected(dataset, order, epoch)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
@pytest.mark.parametrize("world_size", [1, 3])
def test_ranks_continue_in_any_order(dataset: ps.Dataset, order: Any, world_size: int) -> None:
    def loaders() -> list[ps.Loader]:
        return [
            ps.Loader(dataset, 17, order=order, rank=rank, world_size=world_size, uneven="pad")
            for rank in range(world_size)
        ]

    first = loaders()
    iterators = [iter(one) for one in first]
    seen = [n for _ in range(4) for one in iterators for n in ids(next(one))]
    others = [ps.Loader(dataset, 13, order=order, rank=r, world_size=2) for r in range(2)]
    for one in others:
        one.load_state_dict(first[-1].state_dict())
    seen += [n for both in zip(*others, strict=True) for batch in both for n in ids(batch)]
    whole = expected(dataset, order)
    assert seen[: len(whole)] == whole


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("memory_bytes", [1, 4_000, 20_000])
def test_windows_that_are_larger_than_the_memory_give_the_same(
    dataset: ps.Dataset, memory_bytes: int, threads: int
) -> None:
    order = ps.Blocked(3, window_chunks=None, window_records=400)
    options: dict[str, Any] = {"order": order, "memory_bytes": memory_bytes, "threads": threads}
    loader = ps.Loader(dataset, 64, **options)
    with pytest.warns(UserWarning, match="more memory_bytes="):
        seen = [n for batch in loader for n in ids(batch)]
    assert seen == expected(dataset, order)


def test_windows_stay_within_their_part_of_the_memory(tmp_path: Path) -> None:
    """One window has 80 MB. It begins with records of 100 bytes, which do not predict the size of the others. All windows
    together may have two thirds of half of the memory, 21 MiB."""
    path = tmp_path / "x.tfrecord"
    sizes = [100] * 1000 + [400_000] * 200
    ps.write({"id": np.arange(1200), "blob": [bytes(size) for size in sizes]}, path)
    loader = ps.Loader(
        *(ps.open(path), 20),
        order=ps.Blocked(0, window_chunks=None, window_records=1200),
        memory_bytes=64 << 20,
        threads=2,
    )
    readings: list[Any] = []
    made = loader._maker._reading  # pyright: ignore[reportPrivateUsage]

    def reading(*arguments: Any, **named: Any) -> Any:
        readings.append(made(*arguments, **named))
        return readings[0]

    loader._maker._reading = reading  # pyright: ignore[reportPrivateUsage]
    with pytest.warns(UserWarning, match="more than 10 MiB"):
        batches = [(ids(batch), readings[0].num_bytes) for batch in loader]
    seen = [n for numbers, _ in batches for n in numbers]
    assert max(held for _, held in batches) < 64 * 2**20 // 3
    assert sorted(seen) == list(range(1200))


def test_windows_skip_damage(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": np.arange(COUNT), "text": [f"n{n}".encode() for n in range(COUNT)]}, path)
    data = bytearray(path.read_bytes())
    for number in (30, 31, 599):
        data[data.index(f"n{number}".encode())] ^= 1
    path.write_bytes(data)
    order = ps.Blocked(1, window_records=128)
    loader = ps.Loader(ps.open(path, damage="skip"), 50, order=order)
    seen = [n for batch in loader for n in ids(batch)]
    assert seen == [n for n in expected_alone(path, order) if n not in (30, 31, 599)]
    assert loader.stats().num_skipped == 3
    with pytest.raises(ps.ChecksumError):
        list(ps.Loader(ps.open(path), 50, order=order))


def expected_alone(path: Path, order: ps.Blocked) -> list[int]:
    chunks = ps.open(path, damage="skip").files.reader(0).chunks()
    lengths = [chunk.num_records for chunk in chunks]
    return order.take(COUNT, 0, 0, COUNT, chunk_lengths=lengths).tolist()


def test_a_mixture_takes_each_set_by_its_share(tmp_path: Path) -> None:
    sets = {}
    for name, first, count in (("a", 0, 90), ("b", 1000, 30)):
        path = tmp_path / f"{name}.tfrecord"
        ps.write({"id": np.arange(first, first + count)}, path)
        sets[name] = ps.open(path)
    order = ps.Mixture({"b": 0.5, "a": 0.5}, seed=0)
    loader = ps.Loader(sets, 10, order=order)
    assert len(loader) == 12
    shares = [sum(n >= 1000 for n in ids(batch)) for batch in loader]
    assert sum(shares) == 60
    assert np.abs(np.cumsum(shares) - 5 * np.arange(1, 13)).max() <= 1
    with pytest.raises(ValueError, match="mixes the datasets"):
        ps.Loader({"a": sets["a"]}, 10, order=order)
    with pytest.raises(ValueError, match="mixes the datasets"):
        ps.Loader(sets["a"], 10, order=order)


def test_a_mixture_may_end_with_its_first_set(tmp_path: Path) -> None:
    sets = {}
    for name, first, count in (("a", 0, 90), ("b", 1000, 30)):
        ps.write({"id": np.arange(first, first + count)}, tmp_path / f"{name}.tfrecord")
        sets[name] = ps.open(tmp_path / f"{name}.tfrecord")
    order = ps.Mixture({"a": 0.5, "b": 0.5}, seed=0, num_records="first_exhausted")
    loader = ps.Loader(sets, 7, order=order)
    first, second, third = ([n for batch in loader for n in ids(batch)] for _ in range(3))
    for epoch in (first, second, third):
        assert sorted(n for n in epoch if n >= 1000) == list(range(1000, 1030))
    assert sorted(n for n in first + second + third if n < 1000) == list(range(90))
    loader.set_epoch(1)
    next(iter(loader))
    resumed = ps.Loader(sets, 7, order=order)
    resumed.load_state_dict(loader.state_dict())
    assert [n for batch in resumed for n in ids(batch)] == second[7:]
    other = ps.Mixture({"a": 0.5, "b": 0.5}, seed=0, num_records=60)
    with pytest.raises(ps.StateError, match="another order"):
        ps.Loader(sets, 7, order=other).load_state_dict(loader.state_dict())


def test_a_state_that_does_not_fit_says_what_differs(tmp_path: Path) -> None:
    ps.write({"id": range(6)}, tmp_path / "a.arrow")
    ds = ps.open(tmp_path / "a.arrow")

    def loader(b: float, c: float, **more: Any) -> ps.Loader:
        order = ps.Mixture({"a": 0.5, "b": b, "c": c}, **{"seed": 0, **more})
        return ps.Loader({"a": ds, "b": ds, "c": ds}, 4, order=order)

    def difference(mine: ps.Loader, other: ps.Loader) -> tuple[Any, Any]:
        with pytest.raises(ps.StateError, match="another order") as caught:
            mine.load_state_dict(other.state_dict())
        return caught.value.expected, caught.value.found

    mine = loader(0.25, 0.25)
    assert difference(mine, loader(0.125, 0.375)) == (
        "weights [['b', 0.25], ['c', 0.25]]",
        "weights [['b', 0.125], ['c', 0.375]]",
    )
    assert difference(mine, loader(0.25, 0.25, seed=3)) == ("seed 0", "seed 3")
    assert difference(mine, loader(0.25, 0.25, seed=3, num_records=9)) == (
        "seed 0, num_records None",
        "seed 3, num_records 9",
    )
    alone = ps.Loader([ds, ds, ds], 4, order=ps.Shuffled(0))
    assert difference(alone, mine)[0].startswith("name 'shuffled'")


def test_a_window_has_fewer_chunks_if_they_are_large(tmp_path: Path) -> None:
    """The chunks of this file have a little more than 16 MiB, so that 7 of them are a window."""
    path = tmp_path / "x.parquet"
    blobs = [bytes(1 << 20)] * 320
    table = pa.table({"id": range(320), "blob": blobs})
    pq.write_table(table, path, row_group_size=16, compression="none", use_dictionary=False)
    dataset = ps.open(path)
    lengths = {"chunk_lengths": dataset.files.chunk_lengths}
    wanted = ps.Blocked(5, window_chunks=7).take(320, 0, 0, 320, **lengths)
    loader = ps.Loader(dataset, 20, order=ps.Blocked(5), columns=["id"])
    assert [n for batch in loader for n in ids(batch)] == wanted.tolist()
    again = ps.Loader(dataset, 20, order=ps.Blocked(5, window_chunks=7), columns=["id"])
    again.load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match="window_chunks"):
        ps.Loader(dataset, 20, order=ps.Blocked(5, window_chunks=32)).load_state_dict(
            loader.state_dict()
        )
