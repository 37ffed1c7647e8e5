"""Whole files as tensors: `tf.io.read_file`, `write_file`, `matching_files`."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from penstock.errors import shown
from penstock.tf import probing
from penstock.tf.errors import InvalidArgumentError, UnimplementedError, of_system
from penstock.tf.patterns import matching
from penstock.tf.remote import created, is_remote, opened
from penstock.tf.remote import matching as matching_objects
from penstock.tf.tensor import Tensor, constant

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def path_of(value: Any) -> str:
    """Convert a str, bytes, path, or scalar string tensor to a local path, without `file://`.

    Raises:
        InvalidArgumentError: a tensor of several strings.
        UnimplementedError: it is in another file system, such as `gs://` or `s3://`.
        TypeError: not a path.
    """
    path = name_of(value)
    if is_remote(path):
        raise UnimplementedError(
            None,
            None,
            f"this is done with files on this machine only (file: '{shown(path)}')",
            hint="copy the file to this machine with tf.io.gfile.copy",
        )
    return path


def name_of(value: Any) -> str:
    """Convert as `path_of` does, to a local path or the name of an object, such as `s3://bucket/key`.

    Raises:
        InvalidArgumentError: a tensor of several strings.
        UnimplementedError: it is in another file system, such as `hdfs://`.
        TypeError: not a path.
    """
    if isinstance(value, (np.ndarray, list, tuple)):
        array = np.asarray(value, object)
        if array.ndim:
            shape = list(array.shape)
            raise InvalidArgumentError(
                None, None, f"Input filename tensor must be scalar, but had shape: {shape}"
            )
        value = array.item()
    path = os.fsdecode(value)
    scheme = _SCHEME.match(path)
    if scheme is None or is_remote(path):
        return path
    if scheme[1] == "file":
        return path.removeprefix("file://")
    raise UnimplementedError(
        None,
        None,
        f"File system scheme '{scheme[1]}' not implemented (file: '{path}')",
        hint="copy the files to this machine first",
    )


def paths_of(values: Any) -> list[str]:
    """Convert one path as in `name_of`, or a list, tuple or tensor of paths, to local paths."""
    if isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.ndim):
        return [path for value in values for path in paths_of(value)]
    return [name_of(values)]


def found_by(pattern: str) -> list[str]:
    """The files or objects that a pattern matches, in any order."""
    return matching_objects(pattern) if is_remote(pattern) else matching(pattern)


def matched(patterns: Any) -> list[str]:
    """The files that patterns match, sorted. `*`, `?` and `[…]` match within one folder.

    Args:
        patterns: a pattern, or a list or tensor of them.
    """
    found = {path for pattern in paths_of(patterns) for path in found_by(pattern)}
    return sorted(found)


@probing.instead(lambda filename, name=None: constant(probing.TEXT))
def read_file(filename: Any, name: str | None = None) -> Tensor:
    """A whole file as a scalar string tensor.

    Args:
        filename: its path, a str, path or scalar string tensor.
        name: ignored.

    Returns:
        Tensor: shape (), dtype string.

    Raises:
        NotFoundError: there is no such file (also a FileNotFoundError).
        FailedPreconditionError: it is a folder.

    Example:
        >>> import penstock.tf as tf
        >>> tf.io.write_file("note.txt", "some bytes")
        >>> tf.io.read_file("note.txt").numpy()
        b'some bytes'
    """
    path = name_of(filename)
    if is_remote(path):
        with opened(path) as file:
            return constant(file.read())
    try:
        with open(path, "rb") as file:
            return constant(file.read())
    except OSError as error:
        raise of_system(error, path) from error


def write_file(filename: Any, contents: Any, name: str | None = None) -> None:
    """Write a whole file, and make missing folders.

    Args:
        filename: its path, a str, path or scalar string tensor.
        contents: bytes, str or a scalar string tensor.
        name: ignored.

    Raises:
        PermissionDeniedError, FailedPreconditionError, …: errors of the file system.

    Example:
        >>> import penstock.tf as tf
        >>> tf.io.write_file("deep/er/note.txt", b"some bytes")
    """
    path = name_of(filename)
    data = constant(contents).numpy()
    if not isinstance(data, bytes):
        raise InvalidArgumentError(
            None, None, f"Contents tensor must be scalar, but had shape: {list(np.shape(data))}"
        )
    if is_remote(path):
        with created(path) as file:
            file.write(data)
        return
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise of_system(error, path) from error


def matching_files(pattern: Any, name: str | None = None) -> Tensor:
    """The files that patterns match, sorted.

    Args:
        pattern: a pattern with `*`, `?` or `[…]`, or a list or tensor of them.
        name: ignored.

    Returns:
        Tensor: shape (files,), dtype string; may be empty.

    Example:
        >>> import penstock.tf as tf
        >>> tf.io.write_file("part-0.txt", b""), tf.io.write_file("part-1.txt", b"")
        (None, None)
        >>> tf.io.matching_files("part-*.txt").numpy().tolist()
        [b'./part-0.txt', b'./part-1.txt']
    """
    found = [os.fsencode(path) for path in matched(pattern)]
    return np.array(found, object).reshape(-1).view(Tensor)
