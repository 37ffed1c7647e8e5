"""The errors of TensorFlow's input pipeline with TensorFlow's names. Each is also the matching Python error.

Programs can catch either: `tf.errors.NotFoundError` is a `FileNotFoundError`; `InvalidArgumentError` and
`DataLossError` are `ValueError`s. All are `ps.PenstockError`s, so they name the file, record and byte.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from penstock.errors import FormatError, PenstockError


class OpError(PenstockError):
    """Base of TensorFlow's errors.

    Args:
        node_def, op: parts of TensorFlow's graph, which are only stored.
        message (str): what went wrong.
        facts: the facts of a `ps.PenstockError`: file, record, field, byte, expected, found, hint.

    Example:
        >>> import penstock.tf as tf
        >>> tf.errors.InvalidArgumentError(None, None, "no such shape").message
        'no such shape'
    """

    error_code = 2  # UNKNOWN, in TensorFlow's numbering

    def __init__(
        self, node_def: Any = None, op: Any = None, message: str = "", *_: Any, **facts: Any
    ) -> None:
        super().__init__(message, **facts)
        self.node_def = node_def
        self.op = op

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.facts())


def _rebuild(kind: type[OpError], message: str, facts: dict[str, Any]) -> OpError:
    return kind(None, None, message, **facts)


class CancelledError(OpError):
    """The work was cancelled."""

    error_code = 1


class UnknownError(OpError):
    """An error that has no other class."""


class InvalidArgumentError(OpError, ValueError):
    """A value, shape or record that is not valid for the operation."""

    error_code = 3


class NotFoundError(OpError, FileNotFoundError):
    """A file that does not exist."""

    error_code = 5


class AlreadyExistsError(OpError, FileExistsError):
    """Something that already exists, such as the lock of a cache that another iterator fills."""

    error_code = 6


class PermissionDeniedError(OpError, PermissionError):
    """A file that may not be read or written."""

    error_code = 7


class ResourceExhaustedError(OpError, MemoryError):
    """Not enough memory or disk space."""

    error_code = 8


class AbortedError(OpError):
    """Work that was aborted in favour of other work."""

    error_code = 10


class DeadlineExceededError(OpError, TimeoutError):
    """Work that took longer than allowed."""

    error_code = 4


class UnauthenticatedError(OpError, PermissionError):
    """A service that cannot identify the caller."""

    error_code = 16


class FailedPreconditionError(OpError):
    """The state does not allow the operation; for example, a folder in place of a file."""

    error_code = 9


class OutOfRangeError(OpError):
    """The input ended too early."""

    error_code = 11


class UnimplementedError(OpError, NotImplementedError):
    """Valid, but not implemented."""

    error_code = 12


class InternalError(OpError):
    """A fault of the library itself."""

    error_code = 13


class UnavailableError(OpError):
    """A service or device that cannot be reached."""

    error_code = 14


class DataLossError(OpError, ValueError):
    """Data that is damaged: a checksum that does not match, a file that ends too early."""

    error_code = 15


class DecodeError(FormatError):
    """Bytes that are not a valid message. protobuf has a class of this name."""


_OF_SYSTEM: dict[int | None, type[OpError]] = {
    errno.EACCES: PermissionDeniedError,
    errno.EDQUOT: ResourceExhaustedError,
    errno.EEXIST: AlreadyExistsError,
    errno.EISDIR: FailedPreconditionError,
    errno.ENAMETOOLONG: InvalidArgumentError,
    errno.ENOENT: NotFoundError,
    errno.ENOSPC: ResourceExhaustedError,
    errno.ENOTDIR: FailedPreconditionError,
    errno.ENOTEMPTY: FailedPreconditionError,
    errno.EPERM: PermissionDeniedError,
    errno.EROFS: PermissionDeniedError,
}


def of_system(error: OSError, path: str) -> OpError:
    """An error of the operating system as TensorFlow's error with the same meaning.

    Args:
        error: the system's error.
        path: the file.

    Returns:
        The error, to be raised.

    Example:
        >>> from penstock.tf import errors
        >>> errors.of_system(FileNotFoundError(2, "No such file or directory"), "a.jpg")
        NotFoundError('a.jpg; No such file or directory')
    """
    kind = _OF_SYSTEM.get(error.errno, UnknownError)
    if error.errno is None and isinstance(error, FileNotFoundError):
        kind = NotFoundError  # raised by penstock itself
    return kind(None, None, f"{path}; {os.strerror(error.errno) if error.errno else error}")
