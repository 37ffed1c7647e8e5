"""After a power failure at any moment of any writer, there is the complete old data or the complete new data, and the
next writer can continue."""

from __future__ import annotations

import gc
import hashlib
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from power import Recorder

import penstock as ps
from penstock.framing.index import sidecar
from penstock.storage import folder, journal
from penstock.storage.folder import size_of
from penstock.verbs.append import _work as append_work
from penstock.verbs.append import append
from penstock.verbs.convert import journal as convert_journal
from penstock.verbs.fields import rewrite_journal

OLD = [{"id": n, "text": f"record {n} " * 20} for n in range(60)]
NEW = [{"id": n, "text": f"another {n} " * 25} for n in range(100, 170)]
MORE = [{"id": n, "text": f"more {n} " * 90} for n in range(200, 230)]
SCORES = [n / 4 for n in range(60)]
SCORED = [{**row, "score": score} for row, score in zip(OLD, SCORES, strict=True)]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Writer:
    """One writer: the data before, what the writer does, and what each shard may contain afterwards."""

    before: Callable[[Path], Any]
    does: Callable[[Path], Any]
    allowed: dict[str, list[Rows | None]]
    """The records that a shard may have. The last entry is what it has when the writer has finished; None if the
    shard may be missing."""
    again: Callable[[Path], Any] | None = None
    """What the next writer does, if that is something else."""
    may_refuse: bool = False
    """Whether a reader may refuse and ask the user to call the writer again, because its journal is there."""


def written(name: str, **options: Any) -> Callable[[Path], Any]:
    return lambda folder: ps.write(OLD, folder / name, threads=1, **options)


def over(name: str, rows: Rows = NEW, **options: Any) -> Callable[[Path], Any]:
    return lambda folder: ps.write(rows, folder / name, overwrite=True, threads=1, **options)


def nothing(folder: Path) -> None:
    del folder


def shards(number: int, rows: Rows, name: str = "x", end: str = ".tfrecord") -> dict[str, Rows]:
    base, longer = divmod(len(rows), number)
    firsts = [n * base + min(n, longer) for n in range(number + 1)]
    return {
        f"{name}-{n:05d}-of-{number:05d}{end}": rows[firsts[n] : firsts[n + 1]]
        for n in range(number)
    }


def either(old: dict[str, Rows], new: dict[str, Rows]) -> dict[str, list[Rows | None]]:
    return {name: [old.get(name), new[name]] for name in new}


def pictures(values: range) -> Rows:
    images = ps.encode_images(np.stack([np.full((4, 4, 3), n, np.uint8) for n in values]), "png")
    return [{"image": image, "n": n} for image, n in zip(images.to_pylist(), values, strict=True)]


def scored(name: str) -> Callable[[Path], Any]:
    def do(folder: Path) -> None:
        ps.write(OLD, folder / name, threads=1)
        ps.add_fields(folder / name, {"score": SCORES})

    return do


def baked(path: Path) -> None:
    is_begun = any(path.parent.glob(".penstock-fields-*.json"))
    if is_begun or ps.overlays(path):
        ps.bake_fields(path, in_place=True)


def damaged(folder: Path) -> None:
    ps.write(OLD, folder / "x.tfrecord", threads=1, index=False)
    data = bytearray((folder / "x.tfrecord").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "x.tfrecord").write_bytes(data)


def converted(target: str, **options: Any) -> Callable[[Path], Any]:
    return lambda folder: ps.convert(
        folder.parent / "source.msgpack", folder / target, overwrite=True, threads=1, **options
    )


def cached(folder: Path) -> None:
    loader = ps.Loader(ps.open(folder.parent / "source.msgpack"), 10, cache=str(folder))
    for _ in range(500):
        list(loader)
        if any(is_indexed(folder, name) for name in os.listdir(folder)):
            break
        time.sleep(0.01)


def is_indexed(folder: Path, name: str) -> bool:
    return name.startswith("cache-") and os.path.exists(sidecar.path_for(str(folder / name), None))


def one(name: str, *allowed: Rows | None) -> dict[str, list[Rows | None]]:
    return {name: list(allowed)}


GREW = OLD + MORE
APPENDED: dict[str, Writer] = {
    f"append to {name}": Writer(
        written(name, **how),
        lambda folder, name=name: ps.append(MORE, folder / name, threads=1),
        one(name, OLD, GREW),
        again=lambda folder, name=name: ps.append(MORE, folder / name, threads=1),
    )
    for name, how in (
        ("x.tfrecord", {}),
        ("x.tfrecord.gz", {"member_bytes": 2048}),
        ("x.msgpack", {}),
    )
}
REPLACED: dict[str, Writer] = {
    f"replace {name}": Writer(written(name), over(name), one(name, OLD, NEW))
    for name in ("x.tfrecord", "x.hdf5", "x.npz", "x.parquet", "x.msgpack")
}
IMAGES = pictures(range(3)), pictures(range(10, 15))
WRITERS: dict[str, Writer] = {
    **REPLACED,
    **APPENDED,
    "write a new file": Writer(nothing, over("x.tfrecord"), one("x.tfrecord", None, NEW)),
    "write three shards": Writer(
        written("x.tfrecord", num_shards=3),
        over("x.tfrecord", num_shards=3),
        either(shards(3, OLD), shards(3, NEW)),
    ),
    "write shards by bytes": Writer(
        nothing,
        over("x-{shard}.tfrecord", shard_records=35),
        {"x-0.tfrecord": [None, NEW[:35]], "x-1.tfrecord": [None, NEW[35:]]},
    ),
    "a folder of images": Writer(
        lambda folder: ps.write(IMAGES[0], folder / "x", format="imagefolder"),
        lambda folder: ps.write(IMAGES[1], folder / "x", format="imagefolder", overwrite=True),
        one("x", *IMAGES),
    ),
    "convert to shards": Writer(
        written("x.tfrecord", num_shards=3),
        converted("x.tfrecord", num_shards=3),
        either(shards(3, OLD), shards(3, NEW)),
    ),
    "convert by bytes": Writer(
        nothing,
        converted("x-{shard}.tfrecord", shard_bytes=15_000),
        {"x-0.tfrecord": [None, NEW[:43]], "x-1.tfrecord": [None, NEW[43:]]},
    ),
    "append a shard": Writer(
        written("x-{shard}.tfrecord", num_shards=2),
        lambda folder: ps.append(MORE, folder, shard="new", threads=1),
        {"x-0.tfrecord": [OLD[:30]], "x-2.tfrecord": [None, MORE]},
        again=nothing,
    ),
    "fields beside": Writer(
        written("x.tfrecord"),
        lambda folder: ps.add_fields(folder / "x.tfrecord", {"score": SCORES}),
        one("x.tfrecord", OLD, SCORED),
    ),
    "remove fields beside": Writer(
        scored("x.tfrecord"),
        lambda folder: [
            ps.remove_overlay(folder / "x.tfrecord", kept.name)
            for kept in ps.overlays(folder / "x.tfrecord")
        ],
        one("x.tfrecord", SCORED, OLD),
    ),
    **{
        f"fields into {name}": Writer(
            written(name),
            lambda folder, name=name: ps.add_fields(
                folder / name, {"score": SCORES}, in_place=True, replace=True
            ),
            one(name, OLD, SCORED),
        )
        for name in ("x.tfrecord", "x.msgpack", "x.parquet")
    },
    **{
        f"bake into {name}": Writer(
            scored(name),
            lambda folder, name=name: baked(folder / name),
            one(name, SCORED),
            may_refuse=True,
        )
        for name in ("x.tfrecord", "x.msgpack", "x.parquet")
    },
    "drop": Writer(
        written("x.tfrecord"),
        lambda folder: (
            "text" in ps.open(folder / "x.tfrecord").schema.names
            and ps.drop_fields(folder / "x.tfrecord", "text", in_place=True)
        ),
        one("x.tfrecord", OLD, [{"id": row["id"]} for row in OLD]),
    ),
    "index": Writer(
        lambda folder: ps.write(OLD, folder / "x.tfrecord.gz", threads=1, index=False),
        lambda folder: ps.index(folder / "x.tfrecord.gz", force=True),
        one("x.tfrecord.gz", OLD),
    ),
}


def records(path: Path) -> Rows | None:
    """The contents of a shard; Examples have no text type, and return text as bytes."""
    if not path.exists():
        return None
    return [
        {k: v.decode() if k == "text" and isinstance(v, bytes) else v for k, v in row.items()}
        for row in ps.open(path)
    ]


def content(path: Any) -> int:
    """A number for the contents of a file, which is the same on another disk."""
    found = hashlib.blake2b(digest_size=7)
    for file in sorted(Path(path).rglob("*")) if os.path.isdir(path) else [Path(path)]:
        if file.is_file():
            found.update(file.name.encode() + file.read_bytes())
    return int.from_bytes(found.digest(), "little")


def state_of(path: str) -> list[int] | None:
    return [content(path), size_of(path), 0] if os.path.exists(path) else None


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for the disks. Inodes and times differ between disks, so files are recognised by their contents."""
    users = (journal, folder, convert_journal, rewrite_journal, append_work, append)
    for module in users:
        monkeypatch.setattr(module, "state_of", state_of)
    monkeypatch.setenv("PENSTOCK_INDEX", "beside")
    ps.write(NEW, tmp_path / "source.msgpack")
    return tmp_path


def recorded(place: Path, before: Callable[[Path], Any], does: Callable[[Path], Any]) -> Recorder:
    root = place / "recorded"
    root.mkdir()
    before(root)
    recorder = Recorder(root)
    recorder.begin()
    with pytest.MonkeyPatch.context() as patch:
        recorder.installed(patch)
        does(root)
    # Each disk after a power failure is put at the same path, because journals identify files by
    # their paths.
    root.rename(place / "whole")
    return recorder


def check(writer: Writer, disk: Path) -> None:
    before: dict[str, Rows | None] = {}
    for name, allowed in writer.allowed.items():
        try:
            found = before[name] = records(disk / name)
        except ps.StaleIndexError:
            assert writer.may_refuse
            assert any(disk.glob(".penstock-fields-*.json"))
            continue
        assert found in allowed, name
    again = writer.again or writer.does
    again(disk)
    for name, allowed in writer.allowed.items():
        wanted = allowed[-1]
        if writer.again is not None:
            wanted = before[name]
            if again is not nothing:
                assert wanted is not None
                wanted = wanted + MORE
        assert records(disk / name) == wanted, name


def cut(writer: Writer, place: Path, seed: int, count: int) -> None:
    recorder = recorded(place, writer.before, writer.does)
    assert len(recorder.ops) > 2
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        moment = (
            number if number <= len(recorder.ops) < count else rng.randint(0, len(recorder.ops))
        )
        disk = recorder.root
        recorder.left(min(moment, len(recorder.ops)), rng, disk)
        shown = sorted(str(path.relative_to(disk)) for path in disk.rglob("*"))
        with warnings.catch_warnings():
            # A warning about a note or an index that is no longer valid.
            warnings.simplefilter("ignore")
            try:
                check(writer, disk)
            except BaseException as error:
                error.add_note(
                    f"seed {seed}, disk {number}, after {recorder.ops[:moment][-1:]}: {shown}"[
                        :2000
                    ]
                )
                raise
        shutil.rmtree(disk)


@pytest.mark.parametrize("name", WRITERS)
def test_old_or_new_data_is_whole(place: Path, name: str) -> None:
    cut(WRITERS[name], place, seed=1, count=12)


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("name", WRITERS)
def test_old_or_new_data_is_whole_after_any_of_many(place: Path, name: str, seed: int) -> None:
    cut(WRITERS[name], place, seed=100 + seed, count=300)


def test_a_repair_leaves_the_old_file_or_the_new(place: Path) -> None:
    def repair(folder: Path) -> None:
        ps.repair(folder / "x.tfrecord", in_place=True)

    recorder = recorded(place, damaged, repair)
    (old,) = [data for data in recorder.before.values() if data]
    new = (place / "whole" / "x.tfrecord").read_bytes()
    for number in range(30):
        disk = recorder.root
        rng = random.Random(number)
        recorder.left(rng.randint(0, len(recorder.ops)), rng, disk)
        assert (disk / "x.tfrecord").read_bytes() in (old, new)
        repair(disk)
        assert ps.verify(disk / "x.tfrecord").ok
        assert (disk / "x.tfrecord").read_bytes() == new
        shutil.rmtree(disk)


def test_a_copy_in_a_cache_is_whole_or_made_again(place: Path) -> None:
    recorder = recorded(place, nothing, cached)
    for number in range(20):
        disk = recorder.root
        rng = random.Random(number)
        recorder.left(rng.randint(0, len(recorder.ops)), rng, disk)
        cached(disk)
        loader = ps.Loader(ps.open(place / "source.msgpack"), 10, cache=str(disk))
        for _ in range(2):
            found = [n for batch in loader for n in batch["id"].tolist()]
            assert sorted(found) == [row["id"] for row in NEW]
        del loader
        gc.collect()  # or its thread may still be at work there
        shutil.rmtree(disk)


def test_the_model_notices_a_missing_fsync(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.storage.local_sink.Calls.fsync", lambda self, fd: None)
    with pytest.raises((AssertionError, ps.PenstockError)):
        cut(WRITERS["replace x.tfrecord"], place, seed=1, count=60)
