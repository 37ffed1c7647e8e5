"""Plain shards whose windows are read in parallel give the same records as with one thread, also around damage."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import frames
import penstock as ps
from fuzz.mxnet_rules import MAGIC_BYTES
from fuzz.mxnet_rules import file_of as recordio
from penstock.framing.read import windows


def tar(values: list[bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for n, value in enumerate(values):
            for name, data in ((f"{n:06d}.bin", value), (f"{n:06d}.cls", b"%d" % n)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


def messages(values: list[bytes]) -> bytes:
    return b"".join(msgpack.packb({"bin": value}) for value in values)


def examples(values: list[bytes]) -> bytes:
    return frames.file_of(frames.example({"bin": [value]}) for value in values)


MADE = {"a.rec": recordio, "a.tar": tar, "a.msgpack": messages, "a.tfrecord": examples}
COLUMN = {"a.rec": "data", "a.tar": "bin", "a.msgpack": "bin", "a.tfrecord": "bin"}


def read(path: Path, threads: int, **options: Any) -> tuple[list[bytes], Any]:
    """The values of all records, and how it ended: an error's message, or the skipped regions."""
    dataset = ps.open(path, index="never", **options)
    found: list[bytes] = []
    try:
        column = "record" if options.get("raw") else COLUMN[path.name]
        for batch in dataset.scan([column], threads=threads):
            found += batch.column(0).to_pylist()
    except ps.PenstockError as error:
        return found, (type(error), error.record, error.byte, error.message)
    return found, [(r.start_byte, r.end_byte, r.reason) for r in dataset.damage]


LARGE = {
    "small": [b"%d" % n * (n % 40) for n in range(60_000)],
    "large": [bytes([n % 251]) * (90_000 + n) for n in range(120)],
    "larger than windows": [bytes([n]) * (5 << 20) for n in range(4)],
    "all sizes": [bytes([n % 251]) * (1 << (n % 23)) for n in range(50)],
    "none": [],
}


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("sizes", LARGE)
@pytest.mark.parametrize("name", MADE)
def test_all_records_come_in_order(
    name: str, sizes: str, threads: int, tmp_path: Path, *, mmap: bool
) -> None:
    (tmp_path / name).write_bytes(MADE[name](LARGE[sizes]))
    if not LARGE[sizes]:
        assert not list(ps.open(tmp_path / name, format=_format(name)).scan(threads=threads))
        return
    found, end = read(tmp_path / name, threads, mmap=mmap)
    assert found == LARGE[sizes]
    assert end == []


def _format(name: str) -> str:
    formats = {"a.rec": "recordio", "a.tar": "webdataset", "a.msgpack": "msgpack"}
    return formats.get(name, "tfrecord")


_value = st.one_of(
    st.binary(max_size=40),
    st.integers(0, 3000).map(bytes),
    st.lists(st.just(MAGIC_BYTES), max_size=100).map(b"".join),
    # Frames within a payload, which a thread might mistake for records.
    st.lists(st.binary(max_size=30).map(frames.frame), max_size=60).map(b"".join),
)


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    name=st.sampled_from(list(MADE)),
    values=st.lists(_value, min_size=1, max_size=30),
    window=st.integers(1, 4000),
    damage=st.sampled_from(["error", "stop"]),
    harm=st.one_of(
        st.none(),
        st.tuples(st.just("cut"), st.floats(0, 1)),
        st.tuples(st.just("flip"), st.floats(0, 1)),
        st.tuples(st.just("more"), st.binary(min_size=1, max_size=30)),
    ),
)
def test_small_windows_give_what_one_thread_gives(
    name: str,
    values: list[bytes],
    window: int,
    damage: str,
    harm: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = bytearray(MADE[name](values))
    if harm and harm[0] == "cut":
        del data[int(harm[1] * len(data)) :]
    elif harm and harm[0] == "flip" and data:
        data[int(harm[1] * (len(data) - 1))] ^= 0x41
    elif harm and harm[0] == "more":
        data += harm[1]
    path = tmp_path / name
    path.write_bytes(data)
    options: dict[str, Any] = {"damage": damage, "format": _format(name), "raw": True}
    try:
        wanted = read(path, 1, **options)
    except ps.PenstockError as error:  # raised by open
        with pytest.raises(type(error)):
            read(path, 2, **options)
        return
    for name in ("CHUNK_BYTES", "WINDOW_BYTES", "FIRST_WINDOW_BYTES"):
        monkeypatch.setattr(windows, name, window)
    monkeypatch.setattr(windows, "_FIRST_MARGIN", window // 3)
    monkeypatch.setattr(windows, "_LEAST_MARGIN", 1)
    for threads in (2, 3):
        assert read(path, threads, **options) == wanted


def test_a_scan_that_is_left_early_ends_its_threads(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(recordio(LARGE["large"]))
    for _ in range(20):
        batches = ps.open(tmp_path / "a.rec", index="never").scan(threads=3)
        next(batches)
        batches.close()  # type: ignore[attr-defined]


def test_an_error_of_the_storage_comes_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(recordio(LARGE["large"]))
    dataset = ps.open(tmp_path / "a.rec", index="never")
    source = dataset.files.reader(0).source  # type: ignore[attr-defined]
    whole = source.read

    def failing(start: int, length: int) -> Any:
        if start > 5 << 20:
            raise OSError("the disk is gone")
        return whole(start, length)

    source.read = failing
    found: list[bytes] = []
    with pytest.raises(OSError, match="the disk is gone"):
        for batch in dataset.scan(threads=2):
            found += batch.column(0).to_pylist()
    assert found == LARGE["large"][: len(found)]
    assert len(found) > 10
