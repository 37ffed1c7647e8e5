"""Anybody may change the files that penstock writes next to data. Hostile bytes in an index, overlay, note, journal,
cache or state lead to penstock's errors, or the file is ignored."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import _core
from penstock.overlay.file import _TRAILER
from penstock.storage import append_journal as journal
from reading import run_python

ODD: list[Any] = [
    None, True, -1, 1 << 64, 10**400, 1.5, float("inf"), float("nan"), "", "\ud800", "\0", "a" * 70_000,
    [], {}, [[[[]]]], {"a": {}}, [None] * 3, {"0": None},
]  # fmt: skip
DEEP = b'{"a":' * 50_000
RAW = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"1e400",
    b"[" * 100_000,
    DEEP,
    b"\xff\xfe",
    b'{"job": 1}',
    b"\0" * 100,
]


def _ends_well(call: Callable[[], Any], what: object) -> None:
    try:
        call()
    except (ps.PenstockError, OSError):
        pass
    except Exception as error:
        raise AssertionError(f"{str(what)[:300]}: {type(error).__name__}: {error}") from error


def _confused(value: Any) -> Iterator[Any]:
    """Documents in which one value was replaced or removed."""
    if isinstance(value, dict):
        for key in value:
            for odd in ODD:
                yield {**value, key: odd}
            yield {k: v for k, v in value.items() if k != key}
            for inner in _confused(value[key]):
                yield {**value, key: inner}
    elif isinstance(value, list):
        for place, item in enumerate(value[:2]):
            for odd in ODD:
                yield [*value[:place], odd, *value[place + 1 :]]
            for inner in _confused(item):
                yield [*value[:place], inner, *value[place + 1 :]]
        yield value[:-1]
        yield [*value, *value]


def _documents(value: Any) -> Iterator[bytes]:
    for document in _confused(value):
        yield json.dumps(document).encode()
    yield from RAW
    whole = json.dumps(value).encode()
    for cut in range(0, len(whole), max(1, len(whole) // 20)):
        yield whole[:cut]


def _flips(data: bytes, seed: int) -> Iterator[bytes]:
    dice = random.Random(seed)
    for _ in range(60):
        made = bytearray(data)
        for _ in range(dice.choice([1, 1, 2, 8])):
            made[dice.randrange(len(made))] ^= 1 << dice.randrange(8)
        yield bytes(made)
    for _ in range(30):
        made = bytearray(data)
        at, width = dice.randrange(len(made)), dice.choice([4, 8])
        made[at : at + width] = dice.choice([b"\xff", b"\x7f", b"\0"]) * width
        yield bytes(made)
    for _ in range(20):
        yield data[: dice.randrange(len(data))]


def _read(path: Path, **options: Any) -> None:
    ds = ps.open(path, **options)
    for _ in ds.scan():
        pass
    if len(ds):
        ds.take([0, len(ds) - 1])


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_indexes(tmp_path: Path, compression: str | None) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": list(range(300))}, path, compression=compression)
    (sidecar,) = map(Path, ps.index(path))
    good = sidecar.read_bytes()
    for bad in (*_flips(good, 1), *RAW):
        sidecar.write_bytes(bad)
        _ends_well(lambda: _read(path, index="beside"), bad)
        _ends_well(lambda: ps.verify(path), bad)


def test_overlays(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": list(range(50))}, path)
    ps.add_fields(path, {"y": np.arange(50)})
    (overlay,) = tmp_path.rglob("*.overlay")
    good = overlay.read_bytes()
    for bad in (*_flips(good, 2), *_other_facts(good), *RAW):
        overlay.write_bytes(bad)
        _ends_well(lambda: _read(path), bad[-400:])


def _other_facts(good: bytes) -> Iterator[bytes]:
    """The overlay with different facts and correct checksums."""
    start = len(good) - _TRAILER.size - 4
    fields = list(_TRAILER.unpack_from(good, start))
    facts_bytes, blocks, schema_bytes = fields[6], fields[4], fields[5]
    begin = start - facts_bytes - schema_bytes - 20 * blocks
    facts = json.loads(good[start - facts_bytes : start])
    for text in _documents(facts):
        contents = good[begin : start - facts_bytes] + text
        fields[2] = _core.Buffer.from_bytes(contents).crc32c()
        fields[6] = len(text)
        trailer = _TRAILER.pack(*fields)
        crc = _core.Buffer.from_bytes(trailer).crc32c()
        yield good[:begin] + contents + trailer + crc.to_bytes(4, "little")


def _sealed(data: bytes) -> bytes:
    """An overlay with correct checksums for its table and its end."""
    start = len(data) - _TRAILER.size - 4
    fields = list(_TRAILER.unpack_from(data, start))
    begin = start - fields[6] - fields[5] - 20 * fields[4]
    fields[2] = _core.Buffer.from_bytes(data[begin:start]).crc32c()
    trailer = _TRAILER.pack(*fields)
    crc = _core.Buffer.from_bytes(trailer).crc32c()
    return data[:start] + trailer + crc.to_bytes(4, "little")


def test_an_overlay_field_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": list(range(50))}, path)
    ps.add_fields(path, {"scores": np.arange(50)})
    (overlay,) = tmp_path.rglob("*.overlay")
    good = overlay.read_bytes()
    overlay.write_bytes(_sealed(good))
    _read(path)
    overlay.write_bytes(_sealed(good.replace(b"scores", b"sc\xffres")))
    with pytest.raises(ps.FormatError, match="not UTF-8"):
        _read(path)


def test_an_overlay_block_without_its_batch_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": list(range(50))}, path)
    ps.add_fields(path, {"y": np.arange(50)})
    (overlay,) = tmp_path.rglob("*.overlay")
    good = overlay.read_bytes()
    begin = good.index(b"\xff\xff\xff\xff", 8)  # the batch begins here, after the schema
    end = struct.unpack_from("<Q", good, _begin_of(good))[0]
    block = good[:begin] + b"\xff\xff\xff\xff" + bytes(end - begin - 4)
    crc = _core.Buffer.from_bytes(block).crc32c()
    at = _begin_of(good) + 16
    overlay.write_bytes(_sealed(block + good[end:at] + struct.pack("<I", crc) + good[at + 4 :]))
    with pytest.raises(ps.ChangedError, match=r"ends before its batch|no overlay"):
        list(ps.open(path).scan())


def _begin_of(data: bytes) -> int:
    """The position of an overlay's table."""
    start = len(data) - _TRAILER.size - 4
    fields = _TRAILER.unpack_from(data, start)
    return start - fields[6] - fields[5] - 20 * fields[4]


def test_notes_about_appends(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": [1, 2]}, path)
    size = path.stat().st_size
    note = {"old_size": size - 20, "new_size": size, "border": 1, "head": "00" * 20, "tail": 2}
    for bad in _documents(note):
        Path(journal.path_for(str(path))).write_bytes(bad)
        _ends_well(lambda: journal.load(str(path)), bad)
        _ends_well(lambda: _read(path), bad)


def test_journals_of_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.verbs.fields import rewrite_journal

    paths = [str(tmp_path / f"{n}.tfrecord") for n in range(2)]
    for path in paths:
        ps.write({"x": [1, 2]}, path)

    def opened() -> Any:
        return rewrite_journal.Journal(paths, paths, "job", in_place=True)

    made = opened()
    made.load()
    made.begin(0, paths[0], {"num_records": 2, "num_bytes": 9, "contents": "bytes 00"})
    made.finish(0)
    made.begin(1, paths[1], {"num_records": 2, "num_bytes": 9, "contents": "records 00"})
    (stored,) = tmp_path.glob(".penstock-fields-*.json")
    for bad in _documents(json.loads(stored.read_bytes())):
        stored.write_bytes(bad)
        again = opened()
        for call in (again.load, again.written, again.is_of_this_job, again.stop):
            _ends_well(call, bad)


def test_a_journal_of_more_files_than_the_job_has_belongs_to_another_job(tmp_path: Path) -> None:
    from penstock.verbs.fields import rewrite_journal

    path = str(tmp_path / "a.tfrecord")
    ps.write({"x": [1, 2]}, path)
    made = rewrite_journal.Journal([path], [path], "job", in_place=True)
    made.load()
    made.begin(0, path, {"num_records": 2, "num_bytes": 9, "contents": "bytes 00"})
    (stored,) = tmp_path.glob(".penstock-fields-*.json")
    facts = json.loads(stored.read_bytes())
    facts |= {"files": facts["files"] * 3, "before": facts["before"] * 3}
    for shard in (1, 2):
        facts["begun"] = [shard, facts["begun"][1]]
        stored.write_bytes(json.dumps(facts).encode())
        again = rewrite_journal.Journal([path], [path], "job", in_place=True)
        assert again.written() == []
        assert not again.is_of_this_job()
        again.load()
        assert again.done == {}


def test_a_journal_of_very_many_values_takes_little_memory() -> None:
    """A journal of 60 MiB of empty lists, which would be 1.3 GiB in Python."""
    program = """
import re, sys
from penstock.errors import LimitError
from penstock.columns.facts import parsed
text = b"[" + b"[]," * (20 << 20) + b"0]"
try:
    parsed(text, len(text))
except LimitError:
    print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""
    assert int(run_python(program)) < 400 << 10, "KiB"


def test_journals_of_conversions(tmp_path: Path) -> None:
    from penstock.storage.local import LocalStorage
    from penstock.verbs.convert import journal as convert_journal

    target = str(tmp_path / "a.arrow")

    def opened() -> Any:
        return convert_journal.Journal(target, str(tmp_path), "job", None, LocalStorage())

    made = opened()
    Path(made.part_path(0)).write_bytes(b"part")
    made.finish(0, 4, ("said",))
    (stored,) = tmp_path.glob(".penstock-convert-*.json")
    document = json.loads(stored.read_bytes()) | {"files": [target]}
    for bad in _documents(document):
        stored.write_bytes(bad)
        again = opened()
        _ends_well(again.load, bad)
        assert all(isinstance(n, int) and n >= 0 for n in again.done), bad


def test_states_of_loaders(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": list(range(30))}, path)
    loader = ps.Loader(ps.open(path), 4, order=ps.Shuffled(seed=0))
    state = loader.state_dict()
    for bad in _confused(state):
        _ends_well(partial(loader.load_state_dict, bad), bad)
    for bad in ODD:
        _ends_well(partial(loader.load_state_dict, bad), bad)


def test_copies_of_a_loader(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.tfrecord", tmp_path / "cache"
    ps.write({"x": list(range(400))}, path)
    cache.mkdir()

    def labels() -> list[int]:
        loader = ps.Loader(ps.open(path), 20, cache=str(cache))
        return [int(x) for _ in range(2) for batch in loader for x in batch["x"]]

    right = labels()
    for copy in [p for p in cache.rglob("*") if p.is_file()]:
        good = copy.read_bytes()
        for bad in list(_flips(good, 3))[::8] if good else []:
            copy.write_bytes(bad)
            found: list[Any] = []
            _ends_well(lambda kept=found: kept.append(labels()), copy.name)
            assert found in ([], [right])
        copy.write_bytes(good)
