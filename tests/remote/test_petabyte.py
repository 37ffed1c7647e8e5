"""The cost model of `benchmarks.petabyte` counts the requests that a server sees, and the page has its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from benchmarks import petabyte
from benchmarks.petabyte import FRAME_BYTES, Cost
from reading import ROOT
from remote.servers.fault_proxy import FaultProxy, Seen
from remote.servers.seaweed import Seaweed

COUNT = 400
"""Records: 40 MB, which are 5 requests of a scan."""


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        yield proxy


@pytest.fixture
def options(seaweed: Seaweed, proxy: FaultProxy) -> dict[str, str]:
    return seaweed.options(proxy.endpoint)


def write(folder: Path, prefix: str, options: dict[str, str], count: int) -> str:
    """Write a shard of records of 100 KB, and a manifest of it. Return the manifest."""
    blobs = [bytes([n % 256]) * (FRAME_BYTES - 60) for n in range(count)]
    ps.write(
        {"id": range(count), "blob": blobs}, f"s3://{prefix}/x.tfrecord", storage_options=options
    )
    manifest = str(folder / "x.manifest")
    ps.manifest(f"s3://{prefix}/x.tfrecord", manifest, storage_options=options)
    return manifest


def cost(seen: list[Seen]) -> Cost:
    costly = [one for one in seen if one.method != "DELETE"]
    gets = [one for one in costly if one.method in {"GET", "HEAD"} and "list-type" not in one.query]
    read = sum(one.sent for one in gets)
    return Cost(len(gets), len(costly) - len(gets), read, sum(one.received for one in costly))


def test_reading_costs_what_the_model_counts(
    tmp_path: Path, prefix: str, proxy: FaultProxy, options: dict[str, str]
) -> None:
    manifest = write(tmp_path, prefix, options, COUNT)
    num_bytes = ps.open(manifest, storage_options=options).shards[0].num_bytes

    def found(run: Callable[[ps.Dataset], Any]) -> Cost:
        proxy.forget()
        run(ps.open(manifest, storage_options=options))
        return cost(proxy.requests())

    def check(
        name: str,
        run: Callable[[ps.Dataset], Any],
        model: Cost,
        *,
        within: float,
        bytes_within: float = 0.05,
    ) -> None:
        seen = found(run)
        assert seen.gets == pytest.approx(model.gets, rel=within), name
        assert seen.puts == model.puts, name
        assert seen.read == pytest.approx(model.read, rel=bytes_within), name

    def by_tasks(ds: ps.Dataset) -> None:
        for task in ds.tasks(target_bytes=1 << 30):
            list(task.batches())

    def epoch(order: Any, **how: int) -> Callable[[ps.Dataset], None]:
        return lambda ds: list(ps.Loader(ds, 50, order=order, **how))

    check("tasks", by_tasks, petabyte.task(num_bytes, COUNT), within=0)
    check("scan", lambda ds: list(ds.scan()), petabyte.scan(num_bytes, COUNT), within=0)
    # Neighbours within a batch share a request: few, and the fewer the larger the dataset.
    shuffled = petabyte.shuffled(num_bytes, COUNT)
    check("Shuffled", epoch(ps.Shuffled(seed=0)), shuffled, within=0.4)
    # All records are in one window here.
    blocked = petabyte.blocked(num_bytes, COUNT)
    check("Blocked", epoch(ps.Blocked(seed=0)), blocked, within=0.5)
    ranks = petabyte.blocked(num_bytes, COUNT, ranks=8)
    of_one = Cost(ranks.gets // 8, 0, ranks.read // 8)
    run = epoch(ps.Blocked(seed=0), rank=3, world_size=8)
    check("Blocked, 8 ranks", run, of_one, within=0.35, bytes_within=0.15)
    check(
        "verify",
        lambda ds: ps.verify(manifest, storage_options=options),
        petabyte.verify(num_bytes, COUNT),
        within=0.1,
    )


@pytest.mark.stress
def test_converting_costs_what_the_model_counts(
    tmp_path: Path, prefix: str, proxy: FaultProxy, options: dict[str, str]
) -> None:
    manifest = write(tmp_path, prefix, options, 1000)
    num_bytes = ps.open(manifest, storage_options=options).shards[0].num_bytes
    proxy.forget()
    target = f"s3://{prefix}/y.tfrecord"
    ps.convert(manifest, target, storage_options=options, target_storage_options=options)
    seen, model = cost(proxy.requests()), petabyte.convert(num_bytes, 1000)
    # The journal of a whole job is a dozen requests, whatever the number of shards.
    assert model.gets <= seen.gets <= model.gets + 4
    assert model.puts <= seen.puts <= model.puts + 12
    assert seen.read == pytest.approx(model.read, rel=0.02)
    assert seen.written == pytest.approx(model.written, rel=0.02)


def test_shards_are_planned_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(petabyte, "SHARDS", 20_000)
    found = petabyte.planned(tmp_path)
    assert found.num_tasks == 20_000
    assert found.pickle_bytes < 2000
    assert "| scan | 2.41 M | 0 | 0.02 PB |" in "\n".join(found.lines)


@pytest.mark.stress
def test_the_page_has_the_table_of_a_million_shards(tmp_path: Path) -> None:
    found = petabyte.planned(tmp_path)
    assert found.num_tasks == petabyte.SHARDS
    page = (ROOT / "docs" / "reference" / "ray-deployment.md").read_text("utf-8")
    assert "\n".join(found.lines) in page
