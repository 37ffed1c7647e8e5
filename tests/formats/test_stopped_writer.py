"""A writer that is stopped early never makes a file that lacks records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import formats
from penstock.framing.write.writer import FramedWriter
from penstock.storage.local import LocalStorage

BATCH = pa.record_batch({"n": list(range(20_000))})


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["tfrecord", "msgpack", "webdataset"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, ps.SchemaError("no")])
def test_a_writer_that_was_stopped_is_not_used_on(
    tmp_path: Path, name: str, threads: int, stop: Any
) -> None:
    kind: Any = formats.by_name(name)
    sink = LocalStorage().sink(str(tmp_path / "a"))
    writer: Any = kind.create(sink, BATCH.schema, kind.write_options(), threads)
    assert isinstance(writer, FramedWriter)
    done: list[int] = []
    encode = writer._encode  # pyright: ignore[reportPrivateUsage]

    def interrupted(part: pa.RecordBatch, first: int) -> Any:
        done.append(first)
        if len(done) == 3:
            raise stop
        return encode(part, first)

    writer._encode = interrupted  # pyright: ignore[reportPrivateUsage]
    with pytest.raises((KeyboardInterrupt, ps.SchemaError)):
        for _ in range(20):
            writer.write(BATCH)
    assert len(set(done)) == len(done)
    for call in (lambda: writer.write(BATCH), writer.close, writer.flush):
        with pytest.raises(ValueError, match="stopped this writer"):
            call()
    assert len(set(done)) == len(done)
    writer.abort()
    sink.abort()
    assert list(tmp_path.iterdir()) == []
