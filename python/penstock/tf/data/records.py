"""Datasets of the contents of files: TFRecord records, lines of text, records of a fixed size."""

from __future__ import annotations

import errno
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.contract.format import Chunk, Options, Reader
from penstock.errors import PenstockError, TruncatedError
from penstock.formats.tfrecord.format import TFRecordFormat, compression_in, compression_of
from penstock.framing.framings import TFRECORD
from penstock.framing.read.shard import INSIDE
from penstock.storage.base import Source
from penstock.storage.local import LocalSource, LocalStorage
from penstock.tf.data.blocks import AnyBlock, Block, Blocks
from penstock.tf.data.flushed import is_flushed
from penstock.tf.data.op import Op, Stream, elements, whole
from penstock.tf.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    UnimplementedError,
    UnknownError,
)
from penstock.tf.remote import is_remote, opened, place_of, told
from penstock.tf.shapes import TensorSpec
from penstock.tf.tensor import Tensor

_CONTAINERS = {"": "", "GZIP": "gzip", "ZLIB": "zlib"}
LARGE_BYTES = 1024
"""Records of at least this mean size become Python objects immediately, because the cost per object is small for them."""
_LINES = 4096
_HEAD_BYTES = 4096
"""How many bytes of a file show its compression."""


def container_of(compression_type: Any) -> str:
    """penstock's name for a compression of TensorFlow; unknown names mean none, as in TensorFlow.

    Raises:
        UnimplementedError: SNAPPY, which only TensorFlow has.
    """
    word = "" if compression_type is None else compression_type
    if isinstance(word, np.ndarray):
        word = word.item()
    if isinstance(word, bytes):
        word = word.decode()
    if word == "SNAPPY":
        raise UnimplementedError(
            None, None, "SNAPPY files are not read", hint="write them with GZIP or ZLIB"
        )
    return _CONTAINERS.get(word, "")


def refusal(error: OSError, path: str) -> OpError:
    """Convert an error of the operating system to TensorFlow's error."""
    kinds: dict[int | None, type[OpError]] = {
        errno.ENOENT: NotFoundError,
        errno.EACCES: PermissionDeniedError,
        errno.EPERM: PermissionDeniedError,
        errno.EISDIR: FailedPreconditionError,
        errno.ENAMETOOLONG: InvalidArgumentError,
        errno.ENOTDIR: FailedPreconditionError,
    }
    kind = kinds.get(error.errno, UnknownError)
    return kind(None, None, f"{path}; {error.strerror or error}", file=path)


class Files(Op):
    """The contents of several files, concatenated; all strings."""

    def __init__(self, names: Op, read: Callable[[str], Iterator[AnyBlock]]) -> None:
        self.names = names
        self.read = read

    def open(self) -> Stream:
        return Blocks(_FileByFile(elements(self.names.open()), self.read), None, (True,))

    def spec(self) -> Any:
        return TensorSpec([], "string")


class _FileByFile:
    """The blocks of several files. After an error it continues with the next file."""

    def __init__(self, names: Iterator[Any], read: Callable[[str], Iterator[AnyBlock]]) -> None:
        self._names = names
        self._read = read
        self._blocks: Iterator[AnyBlock] = iter(())

    def __iter__(self) -> _FileByFile:
        return self

    def __next__(self) -> AnyBlock:
        while True:
            block = next(self._blocks, None)
            if block is not None:
                return block
            self._blocks = self._read(os.fsdecode(next(self._names).item()))


def read_records(path: str, container: str) -> Iterator[AnyBlock]:
    """The verified records of a TFRecord file.

    Raises:
        DataLossError: the file is damaged, or compressed in another way; raised after the records before it.
        NotFoundError and others: the file cannot be read.
    """
    if is_remote(path):
        with told(path):
            source: Source = place_of(path).source(path)
        source.read_in_order()
    else:
        source = _local(path)
    if not is_remote(path) and not isinstance(source, LocalSource) and os.path.isdir(path):
        raise FailedPreconditionError(None, None, f"{path}; Is a directory", file=path)
    options = Options(raw=True, index="never", format_options={"compression": container})
    try:
        reader = TFRecordFormat().open(source, options)  # type: ignore[arg-type]
        for chunk in reader.chunks():
            yield from _records(reader, chunk)
    except OpError:
        raise
    except PenstockError as error:
        if isinstance(error, TruncatedError) and _ends_quietly(error, path, container):
            return
        raise _otherwise_compressed(source, container, path) or _damage(error) from error
    except OSError as error:
        raise refusal(error, path) from error
    finally:
        source.close()


def _local(path: str) -> Source:
    try:
        return LocalStorage().source(path)
    except OSError as error:
        raise refusal(error, path) from error


def _ends_quietly(error: TruncatedError, path: str, container: str) -> bool:
    """Whether a truncation counts as the end of the data. It does if fewer bytes than the header of a record are left,
    which TensorFlow ignores, or if it is between two records of a compressed file whose writer is still open."""
    if error.expected == TFRECORD.head_bytes:
        return True
    return bool(container) and not error.message.endswith(INSIDE) and is_flushed(path, container)


def ends_between_records(error: TruncatedError, path: str) -> bool:
    """Like `_ends_quietly`, for a file whose compression is detected from its content."""
    source = LocalStorage().source(path)
    try:
        container = compression_in(source)
    finally:
        source.close()
    return _ends_quietly(error, path, container)


def _records(reader: Reader, chunk: Chunk[Any]) -> Iterator[AnyBlock]:
    try:
        batch = reader.decode(chunk, None, None)
    except PenstockError as error:
        before = 0 if error.record is None else error.record - chunk.first_record
        if 0 < before <= chunk.num_records:
            yield _block(reader.decode(chunk, np.arange(before), None))
        raise
    yield _block(batch)


def _block(batch: pa.RecordBatch) -> Block:
    views = batch.column(0)
    strings = views.cast(pa.large_binary()) if _is_small(views) else None
    if strings is None:
        return Block([views.to_numpy(zero_copy_only=False)], len(views))
    return Block([strings], len(views))


def _is_small(views: pa.Array) -> bool:
    """Whether the mean size of the first records is below LARGE_BYTES."""
    few = views.slice(0, 16).cast(pa.large_binary())
    return few.nbytes < LARGE_BYTES * max(1, len(few))


def _otherwise_compressed(source: Source, container: str, path: str) -> DataLossError | None:
    """The error that says how to read the file, if it begins with another compression than the program gave."""
    try:
        head = source.read(0, _HEAD_BYTES).to_bytes()
    except (PenstockError, OSError):
        return None  # a pipe, for example, whose first bytes are gone
    found = compression_of(head)
    if not head or found is None or found == container:
        return None
    given = (
        f"compression_type is {container.upper()}" if container else "no compression_type is given"
    )
    message = (
        f"corrupted record at 0: the file begins as {found or 'a plain TFRecord'}, but {given}"
    )
    return DataLossError(None, None, message, file=path, hint=_argument(found))


def _argument(found: str) -> str:
    """The argument that reads a file with this compression."""
    return f'compression_type="{found.upper()}"' if found else "leave out compression_type"


def _damage(error: PenstockError) -> DataLossError:
    facts = error.facts()
    place = "" if error.byte is None else f" at {error.byte}"
    return DataLossError(None, None, f"corrupted record{place}: {error.message}", **facts)


# -- text and records of one size -----------------------------------------------------------------


def read_lines(path: str, container: str) -> Iterator[AnyBlock]:
    """The lines of a text file without their ends."""
    with _opened(path, container) as file:
        lines: list[bytes] = []
        for line in file:
            # TensorFlow drops every carriage return, anywhere in a line.
            lines.append(line.removesuffix(b"\n").replace(b"\r", b""))
            if len(lines) == _LINES:
                yield _of_list(lines)
                lines = []
        if lines:
            yield _of_list(lines)


def raw_lines(path: str, container: str) -> Iterator[bytes]:
    """The lines of a text file with their ends."""
    with _opened(path, container) as file:
        yield from file


def read_fixed(
    path: str, container: str, record_bytes: int, header_bytes: int, footer_bytes: int
) -> Iterator[AnyBlock]:
    """Records of one size between a header and a footer."""
    with _opened(path, container) as file:
        data = file.read() if container else b""
        size = len(data) if container else file.seek(0, os.SEEK_END)
        body = size - header_bytes - footer_bytes
        if body < 0 or body % record_bytes:
            raise InvalidArgumentError(
                None,
                None,
                f"Excluding the header ({header_bytes} bytes) and footer ({footer_bytes} bytes), input "
                f"file has body length {body} bytes, which is not an exact multiple of the record "
                f"length ({record_bytes} bytes).",
                file=path,
            )
        stream = io.BytesIO(data) if container else file
        stream.seek(header_bytes)
        left = body // record_bytes
        while left:
            count = min(left, max(1, (1 << 20) // record_bytes))
            part = stream.read(count * record_bytes)
            yield _of_list([part[n : n + record_bytes] for n in range(0, len(part), record_bytes)])
            left -= count


def _opened(path: str, container: str) -> Any:
    try:
        if container == "gzip":
            return gzip.open(opened(path) if is_remote(path) else path)
        if container == "zlib":
            with _plain(path) as file:
                return io.BytesIO(zlib.decompress(file.read()))
        return _plain(path)
    except OSError as error:
        raise refusal(error, path) from error
    except zlib.error as error:
        raise DataLossError(None, None, f"inflate() failed: {error}", file=path) from error


def _plain(path: str) -> Any:
    return opened(path) if is_remote(path) else open(path, "rb")


def _of_list(values: list[bytes]) -> Block:
    column = np.empty(len(values), object)
    column[:] = values
    return Block([column], len(values))


# -- names of files -------------------------------------------------------------------------------


def names_of(filenames: Any) -> Tensor:
    """Names of files as a tensor of one dimension.

    Raises:
        TypeError: they are not strings.
    """
    from penstock.tf.tensor import convert_to_tensor

    if isinstance(filenames, os.PathLike):
        filenames = os.fspath(filenames)
    elif isinstance(filenames, (list, tuple)):
        filenames = [os.fspath(n) if isinstance(n, os.PathLike) else n for n in filenames]
        if not filenames:
            return np.empty(0, object).view(Tensor)
    names = convert_to_tensor(filenames)
    if names.dtype != object:
        raise TypeError(
            "The `filenames` argument must contain `tf.string` elements. Got elements of type "
            f"`{names.dtype}`."
        )
    return names.reshape(-1).view(Tensor)


def size_argument(value: Any, name: str) -> int:
    """A number of bytes that is not negative."""
    number = 0 if value is None else whole(value, name)
    if number < 0:
        raise InvalidArgumentError(None, None, f"{name} must be >= 0.", found=number)
    return number
