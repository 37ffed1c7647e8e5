"""Checksums of content: they show that every engine read the same records.

Each engine computes them once, in a round that is not timed, with the code of the timed rounds. All of them are sums,
so the order in which an engine reads files does not matter. penstock's own tests check in which order it delivers
records.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.data import TAKE_BATCHES, TAKE_RECORDS, Data

WRAP = 2**64 - 1


def payload_sum(payloads: Iterable[bytes]) -> int:
    """Sum of the CRC-32 of each payload."""
    return sum(map(zlib.crc32, payloads)) & WRAP


def row_sums(rows: Any) -> np.ndarray:
    """One uint64 for each row of `generate.SmallRows` or `LargeRows`, to which every column contributes."""
    total = 3 * rows.label.astype(np.uint64)
    if hasattr(rows, "image"):
        return total + 7 * np.uint64(rows.image.shape[1]) + rows.image.sum(axis=1, dtype=np.uint64)
    total += rows.id.astype(np.uint64)
    bits = np.ascontiguousarray(rows.embedding).view(np.uint32)
    total += 5 * bits.sum(axis=1, dtype=np.uint64)
    total += np.array([7 * len(t) + sum(t) for t in rows.text], np.uint64)
    return total


def columns_sum(numbers: dict[str, np.ndarray], text: tuple[int, np.ndarray]) -> int:
    """The sum of `row_sums` over a batch, computed from its columns. `numbers` has those of "id" and "label"
    (integers) and "embedding" (float32) that exist. `text` has the total length and the bytes of the text or image
    column."""
    total = 3 * int(numbers["label"].astype(np.uint64).sum())
    if "id" in numbers:
        total += int(numbers["id"].astype(np.uint64).sum())
    if "embedding" in numbers:
        bits = np.ascontiguousarray(numbers["embedding"], np.float32).view(np.uint32)
        total += 5 * int(bits.sum(dtype=np.uint64))
    length, values = text
    return (total + 7 * length + int(values.sum(dtype=np.uint64))) & WRAP


def arrow_sum(batch: Any) -> int:
    """The same for an Arrow record batch or table, including lists and tensors."""
    import pyarrow as pa

    def values(name: str) -> np.ndarray:
        column = batch.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if isinstance(column, pa.ExtensionArray):
            column = column.storage
        while pa.types.is_nested(column.type):
            column = column.flatten()
        return column.to_numpy(zero_copy_only=False)

    names = batch.schema.names
    numbers = {n: values(n) for n in ("id", "label", "embedding") if n in names}
    texts = values("text" if "text" in names else "image")
    joined = b"".join(texts.tolist())
    return columns_sum(numbers, (len(joined), np.frombuffer(joined, np.uint8)))


def texts_sum(numbers: dict[str, np.ndarray], texts: Iterable[bytes]) -> int:
    """The same for NumPy columns, with the text or image as separate byte strings."""
    joined = b"".join(texts)
    return columns_sum(numbers, (len(joined), np.frombuffer(joined, np.uint8)))


def take_batches(data: Data) -> list[np.ndarray]:
    """The record numbers that the `take` cases request: batches without repeats, in random order."""
    rng = np.random.default_rng(7)
    return [
        rng.choice(data.num_records, min(TAKE_RECORDS, data.num_records), replace=False)
        for _ in range(TAKE_BATCHES[data.size])
    ]


def expected(kind: str, data: Data, count: int) -> tuple[int, int]:
    """The number of records and the checksum that a case must have.

    Args:
        kind: "payloads", "columns", "bytes" for whole files; "take payloads", "take columns".
        data: The data set.
        count: The number of records that the engine reports; a slow engine may take only the first batches.
    """
    if kind.startswith("take"):
        numbers = np.concatenate(take_batches(data))[:count]
        of = "payload_crcs" if kind.endswith("payloads") else "row_sums"
        sums = np.load(data.folder / f"{of}.npy", mmap_mode="r")
        return len(numbers), int(sums[numbers].sum(dtype=np.uint64))
    totals = {"payloads": data.payload_sum, "columns": data.column_sum, "bytes": data.payload_bytes}
    return data.num_records, totals[kind]
