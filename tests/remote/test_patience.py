"""While a store does not answer, every verb ends in time: with a StorageError at the deadline, and at once with
Ctrl-C."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage.storage_options import StorageOptions
from remote.servers import faults
from remote.servers.fault_proxy import FaultProxy
from remote.servers.faults import Fault
from remote.servers.seaweed import Seaweed

COUNT, SHARDS = 2000, 2
DEADLINE = 1.5
LONGEST = DEADLINE + 8.4 + 2
"""A request may take a second more for each megabyte that it asks for; the rest is for a busy machine."""
NAMES = ("x.tfrecord", "x.tar", "x.parquet", "x.h5")
FAULTS: dict[str, Fault] = {
    "no answer": faults.silence(60),
    "half a body": faults.stall(0.5, 60),
    "busy": faults.unavailable(),
}
Call = Callable[[], Any]


@pytest.fixture(scope="module")
def place(seaweed: Seaweed, common_bucket: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("patience")
    data = pa.table({"id": range(COUNT), "blob": [os.urandom(900) for _ in range(COUNT)]})
    for name in NAMES:
        for made in ps.write(data, folder / name, num_shards=SHARDS, index=False).paths:
            key = f"{common_bucket}/patience/{Path(made).name}"
            seaweed.client.put(key, Path(made).read_bytes())
    return f"s3://{common_bucket}/patience"


@pytest.fixture
def proxy(seaweed: Seaweed) -> Iterator[FaultProxy]:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        yield proxy


def verbs(
    place: str, name: str, options: dict[str, Any], folder: Path
) -> Iterator[tuple[str, Callable[[], Call]]]:
    """Verbs in two steps: what is done while the store answers, which returns what is done then."""
    url = f"{place}/{name.replace('.', f'@{SHARDS}.', 1)}"
    one = f"{place}/{name.replace('.', '-00000-of-00002.', 1)}"
    how: dict[str, Any] = {"storage_options": options}

    def opened(**more: Any) -> ps.Dataset:
        return ps.open(url, **how, **more)

    def scan() -> Call:
        ds = opened()
        return ds.to_table

    def take() -> Call:
        ds = opened()
        return lambda: ds.take([COUNT - 1, 3])

    def load(order: Any) -> Call:
        loader = ps.Loader(opened(), 64, order=order)
        return lambda: list(loader)

    def at_once(call: Call) -> Callable[[], Call]:
        return lambda: call

    data = pa.table({"id": range(10)})
    new = f"{place}/new/{name}"
    yield "open", at_once(opened)
    yield "scan", scan
    yield "take", take
    yield "shuffled", lambda: load(ps.Shuffled(seed=0))
    yield "blocked", lambda: load(ps.Blocked(seed=0))
    yield "verify", at_once(lambda: ps.verify(url, **how))
    yield "layout", at_once(lambda: ps.layout(one, **how))
    yield "index", at_once(lambda: ps.index(url, folder=folder, force=True, **how))
    yield "repair", at_once(lambda: ps.repair(one, into=folder / name, overwrite=True, **how))
    yield "write", at_once(lambda: ps.write(data, new, overwrite=True, **how))
    yield (
        "convert",
        at_once(lambda: ps.convert(opened(), folder / "c.msgpack", overwrite=True, index=False)),
    )


def ended_late(
    name: str,
    fault: str,
    place: str,
    proxy: FaultProxy,
    options: dict[str, str],
    tmp_path: Path,
    chosen: Collection[str] | None = None,
) -> list[str]:
    """The verbs that do not end with a StorageError in time."""
    patient = {**options, "deadline": DEADLINE}
    late: list[str] = []
    for verb, prepare in verbs(place, name, patient, tmp_path):
        if chosen is not None and verb not in chosen:
            continue
        proxy.heal()
        call = prepare()
        proxy.add(FAULTS[fault])
        begun = time.monotonic()
        with pytest.raises(ps.StorageError):
            call()
        seconds = time.monotonic() - begun
        if seconds > LONGEST:
            late.append(f"{verb} ended after {seconds:.1f} s")
    return late


def test_a_call_ends_at_the_deadline(
    place: str, proxy: FaultProxy, seaweed: Seaweed, tmp_path: Path
) -> None:
    told = NAMES[0], "half a body", place, proxy, seaweed.options(proxy.endpoint), tmp_path
    assert not ended_late(*told, ("open", "take", "blocked", "verify", "write"))


@pytest.mark.stress
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", NAMES)
def test_every_call_ends_at_the_deadline(
    name: str, fault: str, place: str, proxy: FaultProxy, seaweed: Seaweed, tmp_path: Path
) -> None:
    assert not ended_late(name, fault, place, proxy, seaweed.options(proxy.endpoint), tmp_path)


def seconds_until_it_ends(call: Call) -> float:
    """Press Ctrl-C in a call that waits."""
    main = threading.main_thread().ident
    assert main is not None
    pressed: list[float] = []

    def press() -> None:
        time.sleep(0.4)
        pressed.append(time.monotonic())
        signal.pthread_kill(main, signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
        return time.monotonic() - pressed[0]
    finally:
        presser.join()


@pytest.mark.parametrize(
    "fault", ["no answer", pytest.param("half a body", marks=pytest.mark.stress)]
)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == NAMES[0] else pytest.mark.stress) for n in NAMES]
)
def test_ctrl_c_ends_a_call_at_once(
    name: str, fault: str, place: str, proxy: FaultProxy, seaweed: Seaweed, tmp_path: Path
) -> None:
    options = seaweed.options(proxy.endpoint)
    late: list[str] = []
    for verb, prepare in verbs(place, name, options, tmp_path):
        seconds = 0.0
        for _ in range(3):  # the machine may be busy
            proxy.heal()
            call = prepare()
            proxy.add(FAULTS[fault])
            if (seconds := seconds_until_it_ends(call)) < 0.5:
                break
        else:
            late.append(f"{verb} ended after {seconds:.1f} s")
    assert not late


def test_the_deadline_is_a_positive_number_and_kept_in_pickles() -> None:
    assert StorageOptions().times == {}
    options = StorageOptions({"deadline": "30", "aws_region": "here"})
    for one in (options, pickle.loads(pickle.dumps(options))):
        assert dict(one) == {"aws_region": "here"}
        assert one.times == {"deadline_s": 30.0, "stall_s": 10.0}
    assert StorageOptions({"deadline": 2}).times == {"deadline_s": 2.0, "stall_s": 2.0}
    for wrong in ("soon", 0, -1, True, "inf", "nan"):
        with pytest.raises(ValueError, match="positive number of seconds"):
            StorageOptions({"deadline": wrong})
