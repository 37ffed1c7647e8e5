"""The benchmark's rows as Arrow record batches, for the engines that need them as input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks import generate
from benchmarks.data import Data


def schema(data: Data) -> Any:
    """The columns and their types."""
    import pyarrow as pa

    if data.size == "large":
        return pa.schema([("image", pa.binary()), ("label", pa.int64())])
    return pa.schema(
        [
            ("id", pa.int64()),
            ("label", pa.int64()),
            ("embedding", pa.list_(pa.float32())),
            ("text", pa.binary()),
        ]
    )


def batches(data: Data) -> Iterator[Any]:
    """All rows in order."""
    import numpy as np
    import pyarrow as pa

    if data.size == "large":
        for rows in generate.large_rows(data.num_records):
            ends = np.arange(len(rows.label) + 1, dtype=np.int32) * generate.IMAGE_BYTES
            image = pa.Array.from_buffers(
                pa.binary(),
                len(rows.label),
                [None, pa.py_buffer(ends), pa.py_buffer(rows.image.reshape(-1))],
            )
            yield pa.record_batch([image, pa.array(rows.label)], schema=schema(data))
        return
    for rows in generate.small_rows(data.num_records):
        ends = np.arange(len(rows.id) + 1, dtype=np.int32) * generate.EMBEDDING_VALUES
        embedding = pa.ListArray.from_arrays(pa.array(ends), pa.array(rows.embedding.reshape(-1)))
        yield pa.record_batch(
            [pa.array(rows.id), pa.array(rows.label), embedding, pa.array(rows.text, pa.binary())],
            schema=schema(data),
        )


def table(data: Data) -> Any:
    """All rows in memory."""
    import pyarrow as pa

    return pa.Table.from_batches(list(batches(data)), schema(data))
