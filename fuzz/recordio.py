"""The targets for RecordIO: frames, decoding and whole files; results are compared with a plain reader of MXNet's
rules."""

from __future__ import annotations

import contextlib
import functools
import random
import struct

import pyarrow as pa

import penstock as ps
from fuzz import mxnet_rules as rules
from fuzz import seeds
from penstock import _core
from penstock.storage import MemoryStorage

_JPEG = b"\xff\xd8\xff\xe0"
_PACK = ["label", "id", "id2", "image"]


@functools.cache
def files() -> list[bytes]:
    """Files of payloads and packs, with records of many parts."""
    magic = rules.MAGIC_BYTES
    small = [b"", b"a", b"twelve bytes", magic, magic * 3, b"abcd" + magic + b"efg", bytes(100)]
    golden = sorted((seeds.GOLDEN / "recordio").glob("*.rec"))
    return [rules.file_of(small), *map(rules.file_of, [packs()]), *(p.read_bytes() for p in golden)]


@functools.cache
def packs() -> list[bytes]:
    """Payloads of image packs."""
    magic = struct.unpack("<f", rules.MAGIC_BYTES)[0]
    return [
        rules.pack(1.0, _JPEG + bytes(9), 1),
        rules.pack([1.0, 2.0], _JPEG + rules.MAGIC_BYTES * 2, 2, 3),
        rules.pack([magic] * 3, b"", int.from_bytes(rules.MAGIC_BYTES * 2, "little")),
        rules.pack(0.0, b""),
    ]


def walk(data: bytes, rng: random.Random) -> None:
    """Frames of a window: found, found again through an index, and joined, as by the plain reader."""
    window = _core.Buffer.from_bytes(data)
    found, consumed, need, fault = _core.walk("recordio", window, 0, 1 << 30)
    payloads, at, reason = _plainly(data)
    assert (len(found), consumed) == (len(payloads), at)
    assert (reason == "") == (not need and fault is None)
    assert (reason == "broken") == (fault is not None and fault.kind == "framing")
    for lend in (True, False):
        assert pa.array(_core.recordio_payloads(found, lend)).to_pylist() == payloads
    stored = pa.array(found.checksums())
    assert not found.verify(stored)
    starts, lengths = pa.array(found.starts()), pa.array(found.lengths())
    again = _core.frames_at("recordio", window, starts, lengths, starts)
    assert len(again) == len(payloads)
    framed = _core.encode_recordio(pa.array(payloads, pa.binary()))
    assert framed.data.to_bytes() == rules.file_of(payloads)
    place = _core.next_head("recordio", window, rng.randrange(len(data) + 2))
    assert place is None or place[0] + 8 <= len(data)
    anywhere = pa.array([rng.getrandbits(rng.choice((4, 10, 64))) for _ in range(3)], pa.uint64())
    with contextlib.suppress(_core.KernelError):
        _core.frames_at("recordio", window, anywhere, anywhere, anywhere)


def _plainly(data: bytes) -> tuple[list[bytes], int, str]:
    try:
        return *rules.records_of(data), ""
    except rules.Broken as broken:
        return broken.args


def pack(data: bytes, rng: random.Random) -> None:
    """One payload as a record of a pack, among valid records."""
    payloads = [data, *packs()]
    rng.shuffle(payloads)
    window = _core.Buffer.from_bytes(rules.file_of(payloads))
    frames = _core.walk("recordio", window, 0, 1 << 30)[0]
    columns = rng.sample(_PACK, rng.randrange(5))
    num_labels = rng.choice((None, 0, 1, 2, 1 << 40))
    if num_labels is not None:
        # Some have a different number of labels, unless no label is requested.
        _core.recordio_columns(frames, columns, num_labels, False)
        assert "label" not in columns
    batch = pa.record_batch(_core.recordio_columns(frames, columns, None, rng.random() < 0.5))
    batch.validate(full=True)
    unpacked = [rules.unpack(payload) for payload in payloads]
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        wanted = [one[_PACK.index(name)] for one in unpacked]
        if name == "label":
            wanted = [one if isinstance(one, list) else [one] for one in wanted]
        # NaN is not equal to itself, so the texts are compared.
        assert str(values.to_pylist()) == str(wanted)


def file(data: bytes, rng: random.Random) -> None:
    """A whole file through `open` and `scan`, in any damage mode and with any option."""
    options = {
        "damage": rng.choice(("error", "stop", "skip")),
        "raw": rng.random() < 0.3,
        "header": rng.choice((None, True, False)),
        "label": rng.choice((None, "list", "scalar")),
    }
    storage = MemoryStorage({"a.rec": data})
    # The format is named, because a changed head may look like that of another format.
    dataset = ps.open("a.rec", format="recordio", storage=storage, index="never", **options)  # type: ignore[arg-type]
    for batch in dataset.scan(threads=1):
        batch.validate(full=True)
