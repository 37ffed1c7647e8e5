"""Reading a compressed file forwards, with short steps back: the bytes are right, and it is inflated only as often as
needed."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import frames
import penstock as ps
from penstock import _core
from penstock.framing.index.sidecar import SeekPoint
from penstock.framing.streams import forward
from penstock.framing.streams.forward import ForwardStream, Inflation
from penstock.storage._memory import MemorySource

MIB = 1 << 20
PLAIN = random.Random(7).randbytes(MIB) * 24
"""More plain bytes than are kept for steps back."""


def zipped(plain: bytes, num_members: int = 1) -> bytes:
    size = len(plain) // num_members + 1
    parts = [plain[at : at + size] for at in range(0, len(plain), size)]
    return b"".join(gzip.compress(part, 1) for part in parts)


def opened(data: bytes, container: str = "gzip") -> ForwardStream:
    return ForwardStream(MemorySource("m", data), container)


@pytest.fixture
def inflated(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of plain bytes that each inflation returned."""
    counts: list[int] = []
    read = forward.Inflation.read

    def counting(
        self: forward.Inflation, length: int, prefix: _core.Buffer = forward.EMPTY
    ) -> _core.Buffer:
        before = self.plain_bytes
        try:
            return read(self, length, prefix)
        finally:
            counts.append(self.plain_bytes - before)

    monkeypatch.setattr(forward.Inflation, "read", counting)
    return counts


def test_a_read_past_the_end_loses_nothing() -> None:
    stream = opened(zipped(PLAIN[: 6 * MIB]))
    stream.read(0, 2 * MIB)
    assert len(stream.read(1 << 40, 1)) == 0
    assert stream.read(MIB, 4 * MIB).to_bytes() == PLAIN[MIB : 5 * MIB]
    assert stream.size() == 6 * MIB


def test_a_jump_ahead_leaves_a_gap_that_is_read_again() -> None:
    stream = opened(zipped(PLAIN[: 8 * MIB]))
    for start in (0, 4 * MIB, 6 * MIB, 1 * MIB, 3 * MIB):
        got = stream.read(start, 3 * MIB).to_bytes()
        assert got == PLAIN[start : min(start + 3 * MIB, 8 * MIB)], start


@pytest.mark.parametrize("container", ["gzip", "zlib"])
def test_reading_everything_again_inflates_everything_once_more(
    inflated: list[int], container: str
) -> None:
    data = zipped(PLAIN, 5) if container == "gzip" else zlib.compress(PLAIN, 1)
    stream = opened(data, container)
    for passes in (1, 2, 3):
        for start in range(0, len(PLAIN), MIB):
            # Windows overlap, as in a walk that ends inside a record.
            length = min(MIB + 1000, len(PLAIN) - start)
            assert stream.read(start, length).to_bytes() == PLAIN[start : start + length]
        assert sum(inflated) <= passes * len(PLAIN)


def test_reading_back_neither_loses_nor_doubles_reports_of_the_first_pass() -> None:
    data = zipped(PLAIN, 5) + gzip.compress(b"") + zipped(PLAIN[:MIB])
    straight = ForwardStream(MemorySource("m", data), "gzip", MIB)
    winding = ForwardStream(MemorySource("m", data), "gzip", MIB)
    for start in range(0, 25 * MIB, MIB):
        straight.read(start, MIB)
        winding.read(start, MIB)
        winding.read(0, 10)
        winding.read(start // 2, 10)
    assert winding.size() == straight.size()
    assert winding.inflater.take_points() == straight.inflater.take_points()
    assert winding.inflater.take_members() == straight.inflater.take_members()
    told = [[f.kind for f in s.inflater.take_findings()] for s in (winding, straight)]
    assert told[0] == told[1] == ["empty_member"]


def test_after_a_seek_only_kept_bytes_can_be_read_again() -> None:
    first, second = PLAIN[: 3 * MIB], PLAIN[3 * MIB : 20 * MIB]
    head = zipped(first)
    stream = opened(head + zipped(second))
    stream.read(0, MIB)
    stream.resume(SeekPoint(8 * len(head), 2 * MIB))
    assert len(stream.read(0, 10)) == 0
    for start in (2 * MIB, 18 * MIB, 2 * MIB + 5, 18 * MIB):
        want = second[start - 2 * MIB :][:MIB]
        assert stream.read(start, MIB).to_bytes() == want, start


READS = st.lists(st.tuples(st.integers(0, 7000), st.integers(1, 5000)), max_size=12)


@given(
    size=st.integers(0, 6000),
    members=st.integers(1, 4),
    container=st.sampled_from(["gzip", "zlib"]),
    kept=st.sampled_from([0, 700, 16 << 20]),
    reads=READS,
)
def test_any_order_of_reads_gives_the_plain_bytes(
    size: int, members: int, container: str, kept: int, reads: list[tuple[int, int]]
) -> None:
    plain = PLAIN[:size]
    data = (zipped(plain, members) or gzip.compress(b"")) if container == "gzip" else b""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "GZIP_KEPT_BYTES", kept)
        patch.setattr(forward, "SKIP_BYTES", 300)
        stream = opened(data or zlib.compress(plain), container)
        for start, length in reads:
            assert stream.read(start, length).to_bytes() == plain[start : start + length]


@given(cut=st.integers(30, 3000), reads=READS)
def test_before_a_fault_all_bytes_are_there_in_any_order(
    cut: int, reads: list[tuple[int, int]]
) -> None:
    """In a truncated file, every read returns the same bytes as one pass from the beginning."""
    data = zipped(PLAIN[:6000], 2)[:cut]
    there = opened(data).read(0, 1 << 20).to_bytes()
    stream = opened(data)
    for start, length in reads:
        if start < len(there):
            assert stream.read(start, length).to_bytes() == there[start : start + length]
        else:
            with pytest.raises(_core.KernelError):
                stream.read(start, length)


def test_ctrl_c_while_inflating_leaves_the_dataset_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(frames.file_of([b"%8d" % n for n in range(100_000)])))
    dataset = ps.open(path, raw=True, index="never")
    push = Inflation._push

    def interrupted(self: Inflation, *given: Any) -> Any:
        """The signal arrives after input has been consumed and before that is recorded."""
        before = self._input, self._more
        push(self, *given)
        self._input, self._more = before
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Inflation, "_push", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(dataset.scan(threads=1))
    assert sum(batch.num_rows for batch in dataset.scan()) == 100_000
