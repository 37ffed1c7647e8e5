"""The targets for MessagePack; results are compared with msgpack-python."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pyarrow as pa

import penstock as ps
from fuzz import seeds
from penstock import _core
from penstock.formats.msgpack import columns as msgpack_columns
from penstock.storage import MemoryStorage

FRAMING = "msgpack"
_NESTING = 100


def seeded() -> list[bytes]:
    """Files with every kind of value."""
    folder = seeds.GOLDEN / "neighbours"
    files = [folder / "values.msgpack", folder / "arrays.msgpack_numpy"]
    array = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2, 1], b"data": bytes(8)}
    record = {"i": -300, "u": 2**63, "f": 1.5, "s": "é" * 40, "b": b"x" * 300, "l": [1, None, 2]}
    record |= {"m": {"x": [{"y": True}]}, "t": msgpack.Timestamp(5, 6), "a": array}
    record |= {"e": msgpack.ExtType(5, b"abc"), "k": {1: 2}}
    single = msgpack.packb({"f": 1.5, "i": 1}, use_single_float=True)
    made = [
        msgpack.packb(record) * 3,
        msgpack.packb([record, {"i": 1}, {}]),
        single + msgpack.packb({"f": 2.5}) + msgpack.packb({"f": None, "late": 1}),
        b"\xdd\x00\x00\x00\x02" + single * 2,
        b"\xdf\x00\x00\x00\x01\xdb\x00\x00\x00\x01a\xc8\x00\x01\x07z",
    ]
    return [*(path.read_bytes() for path in files if path.exists()), *made]


def run(data: bytes, rng: random.Random) -> None:
    """Finds and skips the values of a window as msgpack-python does; then opens, scans, takes from and writes a whole
    file."""
    window = _core.Buffer.from_bytes(data)
    frames, consumed, need, fault = _core.walk(FRAMING, window, 0, 1 << 30)
    assert consumed == sum(pa.array(frames.lengths()).to_pylist())
    assert (consumed == len(data)) == (fault is None and not need)
    _second_opinion(data, [frames.payload(n) for n in range(len(frames))])
    place = _core.next_head(FRAMING, window, rng.randrange(len(data) + 2))
    assert place is None or data[place[0]] != 0xC1
    if consumed == len(data) and len(frames):
        again = _core.frame_values(pa.array(frames.views()))
        assert again.data.to_bytes() == data
    _columns(frames, rng)


def _second_opinion(data: bytes, records: list[bytes]) -> None:
    """What msgpack-python accepts as a value must be a value here, with the same length."""
    if b"\xc9\xff\xff\xff\xff" in data:
        return  # it adds the type byte to this length, which overflows to 0 bytes
    unpacker = msgpack.Unpacker(
        max_buffer_size=len(data) + 1, strict_map_key=False, raw=True, ext_hook=_ext
    )
    unpacker.feed(data)
    at = 0
    for record in records:
        try:
            unpacker.skip()
        except (ValueError, msgpack.UnpackException, RecursionError):
            return  # its limits on depth are different
        assert unpacker.tell() == at + len(record)
        at += len(record)
    try:
        unpacker.skip()
    except (ValueError, msgpack.UnpackException, RecursionError):
        return
    raise AssertionError(f"one more value at byte {at}")


def _ext(code: int, content: bytes) -> Any:
    return msgpack.ExtType(code, content) if code >= 0 else ("ext", code, content)


def _columns(frames: Any, rng: random.Random) -> None:
    """Columns of the records with an inferred schema; they are written and must read back unchanged."""
    facts = _core.MsgpackFacts()
    facts.see(frames, _NESTING)
    found = facts.columns()
    if found is None:
        return
    kernel = pa.record_batch(found)
    plan = _core.MsgpackPlan(kernel, _NESTING, 1 << 24)
    batch = pa.record_batch(plan.decode(frames))
    batch.validate(full=True)
    assert batch.schema.equals(kernel.schema)
    _same_values(frames, batch)
    framed = _core.encode_msgpack(batch)
    again, consumed, _, fault = _core.walk(FRAMING, framed.data, 0, 1 << 30)
    assert (consumed, fault) == (len(framed.data), None)
    assert _texts(pa.record_batch(plan.decode(again))) == _texts(batch)
    assert again.verify(pa.array(framed.checksums)) == []
    for field in kernel.schema:
        msgpack_columns.inferred_field(field)


def _texts(batch: pa.RecordBatch) -> str:
    return repr(batch.to_pydict())  # NaN is NaN


def _same_values(frames: Any, batch: pa.RecordBatch) -> None:
    """Numbers, strings and booleans must be those that msgpack-python unpacks."""
    plain = (pa.int64(), pa.uint64(), pa.bool_(), pa.string(), pa.float64(), pa.float32())
    names = [field.name for field in batch.schema if field.type in plain and not field.metadata]
    if not names:
        return
    rows = batch.select(names).to_pylist()
    for number, row in enumerate(rows):
        try:
            theirs = msgpack.unpackb(
                frames.payload(number), strict_map_key=False, raw=True, ext_hook=_ext
            )
        except (ValueError, msgpack.UnpackException, RecursionError, TypeError):
            continue
        for name, mine in row.items():
            other = theirs.get(name.encode())
            wanted = other.decode() if isinstance(other, bytes) else other
            assert mine == wanted or mine != mine, (number, name)


def opened(data: bytes, rng: random.Random) -> None:
    """A whole file through `open`, `scan` and `take`."""
    options = {
        "format": "msgpack",
        "damage": rng.choice(("error", "stop", "skip")),
        "raw": rng.random() < 0.3,
        "infer_records": rng.choice((1, 1000, "all")),
        "layout": rng.choice(("auto", "auto", "values", "array")),
    }
    storage = MemoryStorage({"a.msgpack": data})
    dataset = ps.open("a.msgpack", storage=storage, index="never", **options)  # type: ignore[arg-type]
    batches = list(dataset.scan(threads=1))
    for batch in batches:
        batch.validate(full=True)
    whole = pa.Table.from_batches(batches, schema=dataset.schema)
    if options["damage"] == "error" and whole.num_rows:
        number = rng.randrange(whole.num_rows)
        assert repr(dataset.take([number]).to_pydict()) == repr(whole.slice(number, 1).to_pydict())
