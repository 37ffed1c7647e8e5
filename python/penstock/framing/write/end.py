"""Checks whether records can be appended to a framed file, by reading only its last bytes."""

from __future__ import annotations

from penstock import _core
from penstock.errors import FormatError, UnsupportedError, command
from penstock.framing.framings import TFRECORD, Framing
from penstock.framing.index.fitting import ends_whole
from penstock.framing.index.sidecar import Index
from penstock.framing.streams.forward import Inflation
from penstock.storage.base import Source

_TRAILER_BYTES = 8
_STEP_BYTES = 1 << 20


def check_end(source: Source, index: Index, framing: Framing = TFRECORD) -> None:
    """Verify the last record or member of a file with a valid index, because records after damage could not be read.

    Raises:
        FormatError: the last record or member is damaged.
        UnsupportedError: the file ends with an empty gzip member, and TensorFlow reads nothing after it.
    """
    if not index.num_records:
        return
    if not index.compression:
        if not ends_whole(index, source, framing):
            raise _damaged("the last record is damaged", source)
        return
    trailer = source.read(source.size - _TRAILER_BYTES, _TRAILER_BYTES).to_bytes()
    if not any(trailer):
        raise UnsupportedError(
            "the last gzip member is empty, and TensorFlow reads nothing after an empty member",
            file=source.path,
            hint=f"{command('penstock', 'repair', source.path, '--into', 'NEW')}, and append to that",
        )
    _check_stream(source, index)


def _check_stream(source: Source, index: Index) -> None:
    """Inflate from the last seek point. The stream must end where the index says."""
    inflation = Inflation(source, index.compression, index.points[-1] if index.points else None)
    try:
        while len(inflation.read(_STEP_BYTES)):
            pass
    except _core.KernelError as error:
        raise _damaged(error.args[0].message, source) from None
    if inflation.plain_bytes != index.plain_bytes:
        raise _damaged("the end of the compressed data does not match the index", source)


def _damaged(message: str, source: Source) -> FormatError:
    return FormatError(
        f"{message}, so records cannot be appended to the file",
        file=source.path,
        hint=command("penstock", "repair", "--in-place", source.path),
    )
