"""`tf.io.TFRecordWriter`: writes records one by one, and frames many in one call.

Like TensorFlow's, a writer makes the file at its final path, and flushed records can be read there; programs depend
on both. For a file that appears only when it is complete, use `ps.write`. The members of GZIP files hold whole
records, so every reader can read them, and penstock can start in the middle.
"""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock import _core
from penstock.framing.write.output import EMPTY_GZIP
from penstock.tf.errors import FailedPreconditionError, InvalidArgumentError, of_system
from penstock.tf.remote import created, discard, is_remote

if TYPE_CHECKING:
    from typing import Self

_BATCH_BYTES = 4 << 20
_MEMBER_BYTES = 1 << 20
_FRAME_BYTES = 16
"""The size of a frame without its payload."""
_MAX_BINARY_BYTES = 1 << 30
_GZIP_LEVEL = 6


class TFRecordCompressionType:
    """TensorFlow 1's numbers for compressions."""

    NONE = 0
    ZLIB = 1
    GZIP = 2


class TFRecordOptions:
    """How a file of records is compressed.

    Args:
        compression_type: "GZIP", "ZLIB", "" or None; a number of TFRecordCompressionType; or other options
            with a compression.
        compression_level (int | None): 0 to 9; None: the compressor's default.
        mem_level, compression_strategy (int | None): zlib's, for "ZLIB" files.
        flush_mode, input_buffer_size, output_buffer_size, window_bits, compression_method: kept but
            ignored; in TensorFlow, window_bits can make a "GZIP" file a zlib one.

    Raises:
        ValueError: an unknown compression.

    Example:
        >>> import penstock.tf as tf
        >>> tf.io.TFRecordOptions(compression_type="GZIP", compression_level=9).compression_type
        'GZIP'
    """

    compression_type_map: ClassVar[dict[int, str]] = {
        TFRecordCompressionType.ZLIB: "ZLIB",
        TFRecordCompressionType.GZIP: "GZIP",
        TFRecordCompressionType.NONE: "",
    }

    def __init__(
        self,
        compression_type: Any = None,
        flush_mode: int | None = None,
        input_buffer_size: int | None = None,
        output_buffer_size: int | None = None,
        window_bits: int | None = None,
        compression_level: int | None = None,
        compression_method: int | None = None,
        mem_level: int | None = None,
        compression_strategy: int | None = None,
    ) -> None:
        self.get_compression_type_string(compression_type)
        self.compression_type = compression_type
        self.flush_mode = flush_mode
        self.input_buffer_size = input_buffer_size
        self.output_buffer_size = output_buffer_size
        self.window_bits = window_bits
        self.compression_level = compression_level
        self.compression_method = compression_method
        self.mem_level = mem_level
        self.compression_strategy = compression_strategy

    @classmethod
    def get_compression_type_string(cls, options: Any) -> str:
        """The compression of options, a name or a number: "GZIP", "ZLIB" or "".

        Raises:
            ValueError: an unknown compression.
        """
        while isinstance(options, TFRecordOptions):
            options = options.compression_type
        if not options:
            return ""
        name = options if isinstance(options, str) else cls.compression_type_map.get(options)
        if name is None or name not in cls.compression_type_map.values():
            raise ValueError(
                f'Not a valid compression_type: "{options}"; known: "GZIP", "ZLIB" and ""'
            )
        return name


class TFRecordWriter:
    r"""Writes records to a TFRecord file; a context manager that closes it.

    Args:
        path (str | bytes | os.PathLike): the file, which is overwritten. An object of a store (`s3://…`) appears when
            the writer is closed, and not at all if the `with` block raises.
        options (str | TFRecordOptions | None): "GZIP", "ZLIB", ""; or TFRecordOptions.

    Raises:
        NotFoundError: the folder does not exist (also a FileNotFoundError).
        FailedPreconditionError: the path is a folder.
        InvalidArgumentError: options that zlib does not accept.
        ValueError: an unknown compression.

    Example:
        >>> import penstock as ps
        >>> import penstock.tf as tf
        >>> with tf.io.TFRecordWriter("notes.tfrecord") as writer:
        ...     writer.write(b"Record A")
        ...     writer.write(b"Record B")
        >>> ps.open("notes.tfrecord", raw=True)[1]
        {'record': b'Record B'}
    """

    def __init__(self, path: Any, options: Any = None) -> None:
        self._file: Any = None
        kind = TFRecordOptions.get_compression_type_string(options)
        if not isinstance(options, TFRecordOptions):
            options = TFRecordOptions(kind)
        self._records: list[bytes] = []
        self._waiting_bytes = 0
        self._batch_bytes = _MEMBER_BYTES if kind == "GZIP" else _BATCH_BYTES
        self._kind = kind
        self._level = -1 if options.compression_level is None else options.compression_level
        if not -1 <= self._level <= 9:
            raise InvalidArgumentError(
                None, None, f"compression_level is 0 to 9, not {self._level}"
            )
        self._deflate: Any = _deflater(self._level, options) if kind == "ZLIB" else None
        self._is_empty = True
        self._path = os.fsdecode(path)
        if is_remote(self._path):
            self._file = created(self._path)
            return
        try:
            self._file = open(self._path, "wb", buffering=0)  # noqa: SIM115 - close() closes it
        except OSError as error:
            raise of_system(error, self._path) from error

    def write(self, record: bytes) -> None:
        """Add a record.

        Args:
            record (bytes): its payload; or a bytearray, or a str, which is written as UTF-8.

        Raises:
            TypeError: something else, such as a message that is not serialized.
            FailedPreconditionError: the writer is closed.
        """
        if type(record) is not bytes:
            record = _payload(record)
        if self._file is None:
            raise FailedPreconditionError(None, None, "Writer is closed.")
        self._records.append(record)
        self._waiting_bytes += len(record) + _FRAME_BYTES
        if self._waiting_bytes >= self._batch_bytes:
            self._write_out()

    def flush(self) -> None:
        """Write everything to the file, so that it can be read.

        Raises:
            FailedPreconditionError: the writer is closed.
        """
        if self._file is None:
            raise FailedPreconditionError(None, None, "Writer is closed.")
        self._write_out()
        if self._deflate is not None:
            self._put(self._deflate.flush(zlib.Z_SYNC_FLUSH))

    def close(self) -> None:
        """Write the remaining records and close the file. A second call does nothing."""
        if self._file is None:
            return
        try:
            self._write_out()
            if self._deflate is not None:
                self._put(self._deflate.flush())
            elif self._kind == "GZIP" and self._is_empty:
                self._put(EMPTY_GZIP)
        finally:
            file, self._file = self._file, None
            file.close()

    def _write_out(self) -> None:
        """Frame and write the waiting records."""
        if not self._records:
            return
        records, self._records = self._records, []
        is_large = self._waiting_bytes > _MAX_BINARY_BYTES
        self._waiting_bytes = 0
        payloads = pa.array(records, pa.large_binary() if is_large else pa.binary())
        data = _core.frame_records(payloads).data
        if self._kind == "GZIP":
            level = _GZIP_LEVEL if self._level < 0 else self._level
            data = _core.gzip_member(data, 0, len(data), len(records), level)
        self._put(data if self._deflate is None else self._deflate.compress(data))
        self._is_empty = False

    def _put(self, data: Any) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise of_system(error, self._path) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None and self._file is not None:
            discard(self._file)
        self.close()

    def __del__(self) -> None:
        # As in TensorFlow, write the records of a writer that was not closed.
        self.close()


def _payload(record: Any) -> bytes:
    if isinstance(record, str):
        return record.encode()
    if isinstance(record, (bytes, bytearray)):
        return bytes(record)
    more = ""
    if hasattr(record, "SerializeToString"):
        more = "; write its .SerializeToString()"
    elif isinstance(record, np.ndarray):
        more = "; write its .numpy()"
    raise TypeError(
        f"write(): incompatible function arguments: a record is bytes, not {type(record).__name__}{more}"
    )


def _deflater(level: int, options: TFRecordOptions) -> Any:
    memory = 9 if options.mem_level is None else options.mem_level
    strategy = options.compression_strategy or zlib.Z_DEFAULT_STRATEGY
    try:
        return zlib.compressobj(level, zlib.DEFLATED, zlib.MAX_WBITS, memory, strategy)
    except ValueError as error:
        raise InvalidArgumentError(
            None, None, f"zlib does not accept mem_level={memory}, compression_strategy={strategy}"
        ) from error
