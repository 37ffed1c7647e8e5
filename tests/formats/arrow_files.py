"""Arrow files and streams for the tests, written by pyarrow itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from columnar_cases import numbers

from penstock.formats.arrow.format import ArrowFormat

ARROW = ArrowFormat()
BOTH = pytest.mark.parametrize("stream", [False, True], ids=["file", "stream"])
MMAP = pytest.mark.parametrize("mmap", [False, True], ids=["read", "mmap"])


def stored(path: Path, batches: list[pa.RecordBatch], stream: bool, **options: Any) -> Path:
    """Written by pyarrow itself, batch by batch."""
    start = pa.ipc.new_stream if stream else pa.ipc.new_file
    with start(str(path), batches[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


def ten() -> list[pa.RecordBatch]:
    return [numbers(100, i * 100) for i in range(10)]
