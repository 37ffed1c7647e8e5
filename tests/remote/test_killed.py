"""Uploaders and converters that are killed at random moments (kill -9): an object is there whole or not at all, and the
next run ends with the same bytes and leaves no upload open."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from remote.servers import faults
from remote.servers.fault_proxy import FaultProxy
from remote.servers.http1 import Asked
from remote.servers.seaweed import Seaweed

COUNT, SHARDS = 300, 3

UPLOADER = """
import sys, numpy as np, penstock as ps
rng = np.random.default_rng(0)
data = {"blob": [rng.bytes(100_000) for _ in range(300)]}
print("begun", flush=True)
ps.write(data, sys.argv[1], overwrite=True)
"""
CONVERTER = """
import sys, penstock as ps
print("begun", flush=True)
ps.convert(sys.argv[1], sys.argv[2], num_shards=3, overwrite=len(sys.argv) > 3)
"""


@pytest.fixture
def environment(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)


def killed(program: str, *words: str, after: float) -> bool:
    """Run a program and kill it so many seconds after it began to work. Whether it was still running."""
    command = [sys.executable, "-c", program, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.kill()
            return True
        assert process.returncode == 0
        return False


def open_uploads(seaweed: Seaweed, prefix: str) -> list[str]:
    """The keys of uploads that have parts. An upload is noted once the store has named it, so one without parts may
    stay if the process dies between the two."""
    bucket, _, folder = prefix.partition("/")
    text = seaweed.client.done("GET", bucket, query={"uploads": ""}).body.decode()
    found = re.findall(r"<Upload>.*?<Key>([^<]*)</Key>.*?<UploadId>([^<]*)<", text, re.DOTALL)
    return [
        key
        for key, number in found
        if key.startswith(folder)
        and b"<Part>"
        in seaweed.client.done("GET", f"{bucket}/{key}", query={"uploadId": number}).body
    ]


def shards(seaweed: Seaweed, prefix: str) -> dict[str, bytes]:
    bucket, _, folder = prefix.partition("/")
    keys = [key[len(folder) + 1 :] for key in seaweed.client.keys(bucket, f"{folder}/")]
    return {k: seaweed.client.get(f"{prefix}/{k}") for k in keys if k and not k.startswith(".")}


def hidden(seaweed: Seaweed, prefix: str) -> list[str]:
    """What penstock left beside the data, without indexes."""
    bucket, _, folder = prefix.partition("/")
    keys = [key[len(folder) + 1 :] for key in seaweed.client.keys(bucket, f"{folder}/")]
    return [k for k in keys if k.startswith(".") and not k.endswith((".penstock", "/"))]


def has_job(seaweed: Seaweed, prefix: str) -> bool:
    return any(name.endswith("/job.json") for name in hidden(seaweed, prefix))


def kill_uploader(seed: int, prefix: str, seaweed: Seaweed, wanted: bytes) -> bool:
    place = f"{prefix}/{seed}"
    target = f"s3://{place}/x.tfrecord"
    was_killed = killed(UPLOADER, target, after=random.Random(seed).uniform(0.02, 0.7))
    assert shards(seaweed, place) in ({}, {"x.tfrecord": wanted})
    ps.clean(f"s3://{place}/", remove=True, older_than=0)
    assert hidden(seaweed, place) == []
    assert open_uploads(seaweed, place) == []
    return was_killed


def kill_converter(
    seed: int, source: str, prefix: str, seaweed: Seaweed, wanted: dict[str, bytes]
) -> bool:
    """Kill it some times, until it comes to an end."""
    place, moments = f"{prefix}/{seed}", random.Random(seed)
    words = [source, f"s3://{place}/y.tfrecord", *(["overwrite"] if seed % 2 else [])]
    was_killed = False
    for _ in range(3):
        if not killed(CONVERTER, *words, after=moments.uniform(0.05, 1.0)):
            break
        was_killed = True
        for name, body in shards(seaweed, place).items():
            assert body == wanted[name]
        if shards(seaweed, place) == wanted and not has_job(seaweed, place):
            break  # killed after its last step
    else:
        ps.convert(*words[:2], num_shards=SHARDS, overwrite=bool(words[2:]))
    assert shards(seaweed, place) == wanted
    assert open_uploads(seaweed, place) == []
    return was_killed


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What is in the files that the two programs write."""
    folder = tmp_path_factory.mktemp("wanted")
    rng = np.random.default_rng(0)
    data = pa.table({"blob": [rng.bytes(100_000) for _ in range(COUNT)]})
    ps.write(data, folder / "x.tfrecord")
    ps.convert(folder / "x.tfrecord", folder / "y.tfrecord", num_shards=SHARDS)
    return {p.name: p.read_bytes() for p in folder.glob("*.tfrecord")}


@pytest.fixture(scope="module")
def source(wanted: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("source") / "x.tfrecord"
    path.write_bytes(wanted["x.tfrecord"])
    return str(path)


def test_a_killed_uploader(
    environment: None, prefix: str, seaweed: Seaweed, wanted: dict[str, bytes]
) -> None:
    done = [kill_uploader(seed, prefix, seaweed, wanted["x.tfrecord"]) for seed in range(3)]
    assert any(done)


def test_a_killed_converter(
    environment: None, prefix: str, seaweed: Seaweed, source: str, wanted: dict[str, bytes]
) -> None:
    files = {name: body for name, body in wanted.items() if name.startswith("y")}
    done = [kill_converter(seed, source, prefix, seaweed, files) for seed in range(3)]
    assert any(done)


def kill_at(number: int, words: list[str], proxy: FaultProxy, options: dict[str, str]) -> bool:
    """Convert through the proxy, and kill the program when its request of this number comes. Whether it came."""
    environment = os.environ | {name.upper(): value for name, value in options.items()}
    command = [sys.executable, "-c", CONVERTER, *words]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)

    def kill(asked: Asked) -> None:
        process.kill()
        process.wait()

    rule = proxy.add(faults.call(kill), nth=[number])
    process.wait()
    proxy.heal()
    return rule.fired > 0


@pytest.mark.parametrize(
    "numbers",
    [range(5, 60, 13), pytest.param(range(1, 200), marks=pytest.mark.stress)],
    ids=["some", "each"],
)
def test_a_converter_killed_before_a_request(
    numbers: range,
    environment: None,
    prefix: str,
    seaweed: Seaweed,
    source: str,
    wanted: dict[str, bytes],
) -> None:
    files = {name: body for name, body in wanted.items() if name.startswith("y")}
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        for number in numbers:
            place = f"{prefix}/{number}"
            words = [source, f"s3://{place}/y.tfrecord"]
            if not kill_at(number, words, proxy, seaweed.options(proxy.endpoint)):
                assert shards(seaweed, place) == files
                return
            found = shards(seaweed, place)
            assert found == {name: files[name] for name in found}
            if found != files or has_job(seaweed, place):
                ps.convert(*words, num_shards=SHARDS)
            assert shards(seaweed, place) == files
            assert open_uploads(seaweed, place) == []


@pytest.mark.stress
@pytest.mark.parametrize("part", range(5))
def test_fifty_killed_uploaders(
    part: int, environment: None, prefix: str, seaweed: Seaweed, wanted: dict[str, bytes]
) -> None:
    seeds = range(100 + 10 * part, 110 + 10 * part)
    done = [kill_uploader(seed, prefix, seaweed, wanted["x.tfrecord"]) for seed in seeds]
    assert any(done)


@pytest.mark.stress
@pytest.mark.parametrize("part", range(5))
def test_fifty_killed_converters(
    part: int,
    environment: None,
    prefix: str,
    seaweed: Seaweed,
    source: str,
    wanted: dict[str, bytes],
) -> None:
    files = {name: body for name, body in wanted.items() if name.startswith("y")}
    seeds = range(100 + 10 * part, 110 + 10 * part)
    done = [kill_converter(seed, source, prefix, seaweed, files) for seed in seeds]
    assert any(done)
