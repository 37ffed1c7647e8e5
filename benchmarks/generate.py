"""Makes the benchmark data: the same bytes on every machine, without TensorFlow.

``benchmarks.data`` runs it in an environment with numpy and crc32c. It deliberately has its own encoder, so that
penstock does not read data that penstock wrote.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import checks
from benchmarks.data import NUM_SHARDS

CHUNK_RECORDS = {"small": 10_000, "large": 500}
EMBEDDING_VALUES = 16
IMAGE_BYTES = 100_000
WORDS = b"river turbine gate flow head basin tunnel valve pump weir spill crest shaft surge".split()


@dataclass(frozen=True)
class SmallRows:
    """Rows of the small data: id and label int64, embedding float32 [n, 16], text bytes."""

    id: np.ndarray
    label: np.ndarray
    embedding: np.ndarray
    text: list[bytes]


@dataclass(frozen=True)
class LargeRows:
    """Rows of the large data: image uint8 [n, 100000], label int64."""

    image: np.ndarray
    label: np.ndarray


def phrases() -> list[bytes]:
    """5,000 short texts; their mean length makes a payload of about 150 bytes."""
    rng = np.random.default_rng(1)
    picks = rng.integers(0, len(WORDS), (5000, 4))
    lengths = rng.integers(9, 28, 5000)
    texts = [b" ".join(WORDS[i] for i in row) for row in picks]
    return [t[:n] for t, n in zip(texts, lengths.tolist(), strict=True)]


def small_rows(num_records: int) -> Iterator[SmallRows]:
    """All small rows in order, a chunk at a time."""
    texts = phrases()
    for start in range(0, num_records, CHUNK_RECORDS["small"]):
        count = min(CHUNK_RECORDS["small"], num_records - start)
        rng = np.random.default_rng((2, start))
        yield SmallRows(
            id=np.arange(start, start + count, dtype=np.int64),
            label=rng.integers(0, 1000, count),
            embedding=rng.standard_normal((count, EMBEDDING_VALUES), dtype=np.float32),
            text=[texts[i] for i in rng.integers(0, len(texts), count).tolist()],
        )


def large_rows(num_records: int) -> Iterator[LargeRows]:
    """All large rows in order, a chunk at a time. The images are noise, which a codec cannot compress, like a
    JPEG."""
    for start in range(0, num_records, CHUNK_RECORDS["large"]):
        count = min(CHUNK_RECORDS["large"], num_records - start)
        rng = np.random.default_rng((3, start))
        image = np.frombuffer(rng.bytes(count * IMAGE_BYTES), np.uint8)
        yield LargeRows(image.reshape(count, IMAGE_BYTES), rng.integers(0, 1000, count))


def varint(value: int) -> bytes:
    """Protobuf's variable-length integer."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def nested(tag: bytes, body: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return tag + varint(len(body)) + body


def feature(key: bytes, kind: bytes, values: bytes) -> bytes:
    """One entry of the map of features; `kind` is the tag of the list with the `values`."""
    inner = nested(kind, nested(b"\x0a", values))
    return nested(b"\x0a", nested(b"\x0a", key) + nested(b"\x12", inner))


BYTES, FLOATS, INTS = b"\x0a", b"\x12", b"\x1a"


def small_payloads(rows: SmallRows) -> Iterator[bytes]:
    """`tf.train.Example` messages with sorted keys, encoded as protobuf's own writer does."""
    labels = {n: feature(b"label", INTS, varint(n)) for n in range(1000)}
    texts = {t: feature(b"text", BYTES, t) for t in set(rows.text)}
    floats = rows.embedding.astype("<f4").tobytes()
    width = 4 * EMBEDDING_VALUES
    for i, (number, label, text) in enumerate(
        zip(rows.id.tolist(), rows.label.tolist(), rows.text, strict=True)
    ):
        embedding = feature(b"embedding", FLOATS, floats[i * width : (i + 1) * width])
        yield nested(
            b"\x0a", embedding + feature(b"id", INTS, varint(number)) + labels[label] + texts[text]
        )


def large_payloads(rows: LargeRows) -> Iterator[bytes]:
    """The same for the large rows."""
    for image, label in zip(rows.image, rows.label.tolist(), strict=True):
        yield nested(
            b"\x0a",
            feature(b"image", BYTES, image.tobytes()) + feature(b"label", INTS, varint(label)),
        )


def frame(payload: bytes) -> bytes:
    """A TFRecord frame: length and payload, each with its masked CRC32C."""
    from crc32c import crc32c

    def masked(data: bytes) -> int:
        crc = crc32c(data)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    length = struct.pack("<Q", len(payload))
    return b"%b%b%b%b" % (
        length,
        struct.pack("<I", masked(length)),
        payload,
        struct.pack("<I", masked(payload)),
    )


class Files:
    """The plain file and its shards and, for small data, compressed files of the same records."""

    def __init__(self, folder: Path, num_records: int, compressed: bool) -> None:
        self.folder = folder
        self.shard_records = -(-num_records // NUM_SHARDS)
        self.plain = (folder / "plain.tfrecord").open("wb")
        self.gzip = (folder / "single.tfrecord.gz").open("wb") if compressed else None
        self.deflate = zlib.compressobj(6, zlib.DEFLATED, 31)

    def add(self, data: bytes) -> None:
        """Appends whole frames."""
        self.plain.write(data)
        if self.gzip:
            self.gzip.write(self.deflate.compress(data))

    def close(self, offsets: np.ndarray) -> None:
        """Finishes the single files and copies the shards out of the plain one."""
        self.plain.close()
        if self.gzip:
            self.gzip.write(self.deflate.flush())
            self.gzip.close()
        with (self.folder / "plain.tfrecord").open("rb") as plain:
            for number in range(NUM_SHARDS):
                first = min(number * self.shard_records, len(offsets) - 1)
                end = min(first + self.shard_records, len(offsets) - 1)
                data = plain.read(int(offsets[end] - offsets[first]))
                name = f"{number:05d}-of-{NUM_SHARDS:05d}.tfrecord"
                if self.gzip:
                    (self.folder / f"shard-{name}").write_bytes(data)
                    deflate = zlib.compressobj(6, zlib.DEFLATED, 31)
                    (self.folder / f"gzip-{name}.gz").write_bytes(
                        deflate.compress(data) + deflate.flush()
                    )


def generate(size: str, num_records: int, folder: Path) -> None:
    """Writes the files of one dataset, and then the facts about it."""
    files = Files(folder, num_records, compressed=size == "small")
    ends: list[np.ndarray] = []
    crcs = np.empty(num_records, np.uint32)
    sums: list[np.ndarray] = []
    done = plain_bytes = 0
    for rows in small_rows(num_records) if size == "small" else large_rows(num_records):
        encode = small_payloads if isinstance(rows, SmallRows) else large_payloads
        frames = []
        for payload in encode(rows):
            crcs[done] = zlib.crc32(payload)
            frames.append(frame(payload))
            done += 1
        lengths = np.array([len(f) for f in frames], np.uint64)
        ends.append(np.cumsum(lengths) + np.uint64(plain_bytes))
        plain_bytes += int(lengths.sum())
        sums.append(checks.row_sums(rows))
        files.add(b"".join(frames))
    offsets = np.concatenate([np.zeros(1, np.uint64), *ends])
    files.close(offsets)
    row_sums = np.concatenate(sums)
    np.save(folder / "offsets.npy", offsets)
    np.save(folder / "payload_crcs.npy", crcs)
    np.save(folder / "row_sums.npy", row_sums)
    (folder / "facts.json").write_text(
        json.dumps(
            {
                "num_records": num_records,
                "plain_bytes": plain_bytes,
                "payload_bytes": plain_bytes - 16 * num_records,
                "payload_sum": int(crcs.sum(dtype=np.uint64)),
                "column_sum": int(row_sums.sum(dtype=np.uint64)),
            }
        )
    )


if __name__ == "__main__":
    generate(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
