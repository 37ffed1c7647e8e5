"""Valid files to start from: golden ones if the shared folder has them, and small ones made here."""

from __future__ import annotations

import atexit
import functools
import gzip
import io
import json
import os
import shutil
import struct
import tempfile
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from fuzz.tfrecords import framed
from penstock import _core
from penstock.framing.index import sidecar
from penstock.storage.hidden import SIDECAR_SUFFIX

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(os.environ.get("PENSTOCK_SHARED", ROOT.parent / "shared")) / "specs" / "golden"


def _golden(pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(GOLDEN.glob(pattern))]


@functools.cache
def tfrecords() -> list[bytes]:
    """Plain TFRecord files."""
    small = [b"", b"a", b"twelve bytes", b"thirteen byte", bytes(100)]
    return [b"".join(map(framed, small)), framed(b""), *_golden("tfrecord/*.tfrecord")]


@functools.cache
def examples() -> list[bytes]:
    """Serialized Examples and SequenceExamples, some of them unusual."""
    found = [
        bytes.fromhex("0a160a140a0161120f1a0d0a0bffffffffffffffffff0101"),
        bytes.fromhex("0a070a050a01611200"),
        bytes.fromhex("0a090a070a016112021a00"),
        bytes.fromhex("0a150a130a03782079120c120a0d010000000d459c63c3"),
    ]
    for name in ("wire_edge_cases.json", "sequence_example.json"):
        path = GOLDEN / "tf_example" / name
        if path.exists():
            found += list(_hex(json.loads(path.read_text())))
    for data in _golden("tf_example/examples.tfrecord"):
        window = _core.Buffer.from_bytes(data)
        frames = _core.walk("tfrecord", window, 0, 1 << 30)[0]
        found += [frames.payload(n) for n in range(len(frames))]
    return found


def _hex(node: object) -> list[bytes]:
    """All serialized messages anywhere in a golden JSON file."""
    found: list[bytes] = []
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("hex", "serialized_hex", "bytes", "example_hex") and isinstance(value, str):
                try:
                    found.append(bytes.fromhex(value))
                except ValueError:
                    pass
            else:
                found += _hex(value)
    elif isinstance(node, list):
        for value in node:
            found += _hex(value)
    return found


@functools.cache
def compressed() -> list[bytes]:
    """Gzip files of one and many members, with every header field; zlib streams."""
    plain = tfrecords()[0]
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = raw.compress(plain) + raw.flush()
    head = b"\x1f\x8b\x08\x1e\1\2\3\4\0\3" + struct.pack("<H", 5) + b"extra" + b"name\0comment\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    full = head + body + struct.pack("<II", zlib.crc32(plain), len(plain))
    empty = gzip.compress(b"", mtime=0)
    stored = gzip.compress(plain, 0, mtime=0)
    members = b"".join(gzip.compress(plain[n : n + 9], mtime=0) for n in range(0, len(plain), 9))
    ours = _core.gzip_member(_core.Buffer.from_bytes(plain), 0, len(plain), 5, 6).to_bytes()
    return [
        gzip.compress(plain, mtime=0),
        full,
        empty + stored + empty,
        members,
        ours * 2,
        gzip.compress(bytes(50_000), mtime=0),
        zlib.compress(plain),
        zlib.compress(bytes(3000) + plain, 1),
        *_golden("tfrecord/*.gz"),
        *_golden("tfrecord/*.z"),
    ]


def files() -> list[bytes]:
    """TFRecord files of any kind, with Examples or other payloads."""
    return [*tfrecords(), *compressed(), b"".join(map(framed, examples()[:12]))]


@functools.cache
def folder() -> str:
    """A folder that is deleted when the process ends."""
    made = tempfile.mkdtemp(prefix="penstock-fuzz-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@functools.cache
def indexed_file(name: str) -> tuple[str, list[bytes]]:
    """A file on disk and its payloads."""
    payloads = [bytes([n]) * (7 * n) for n in range(40)]
    data = b"".join(map(framed, payloads))
    path = os.path.join(folder(), f"{name}.tfrecord")
    Path(path).write_bytes(gzip.compress(data, mtime=0) if name == "gzip" else data)
    return path, payloads


@functools.cache
def sidecars() -> list[bytes]:
    """Indexes of a plain and of a gzip file."""
    found = []
    for name in ("plain", "gzip"):
        path, _ = indexed_file(name)
        len(ps.open(path, raw=True, index=folder()))
        beside = sidecar.path_for(path, folder())
        assert beside.endswith(SIDECAR_SUFFIX)
        found.append(Path(beside).read_bytes())
    return found


def _table() -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(60), pa.int64()),
            "name": pa.array([f"n{n % 5}" for n in range(60)]).dictionary_encode(),
            "list": pa.array([[n] * (n % 3) for n in range(60)], pa.list_(pa.int32())),
            "struct": pa.array([{"a": n, "b": b"x" * n} for n in range(60)]),
        }
    )


@functools.cache
def parquets() -> list[bytes]:
    """Small Parquet files of the usual codecs."""
    found = []
    for codec in ("none", "snappy", "zstd"):
        out = io.BytesIO()
        pq.write_table(
            _table(), out, compression=codec, row_group_size=25, write_page_checksum=codec == "none"
        )
        found.append(out.getvalue())
    return [*found, *_golden("neighbours/*.parquet")]


@functools.cache
def arrows() -> list[bytes]:
    """Small Arrow IPC files and streams, plain and compressed, and some that can be read in parts."""
    found = []
    in_parts = _table().drop_columns(["name"])
    long = [None if n % 5 == 0 else f"{n:03}" * (n % 9) for n in range(len(in_parts))]
    as_views = in_parts.append_column("views", pa.array(long, pa.string_view()))
    for kind in (pa.ipc.new_file, pa.ipc.new_stream):
        for codec, table in (
            (None, _table()),
            ("zstd", _table()),
            ("lz4", _table()),
            (None, in_parts),
            ("lz4", in_parts),
            ("zstd", in_parts),
            (None, as_views),
        ):
            out = io.BytesIO()
            with kind(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as w:
                w.write_table(table, max_chunksize=25)
            found.append(out.getvalue())
    return found


def everything() -> list[bytes]:
    """A few files of each format."""
    return [*tfrecords(), *compressed(), *parquets()[:1], *arrows()[:4]]
