"""`cache`: the elements of a complete pass, kept in memory or in a file.

In memory, an incomplete pass is not kept. For a file `path`, there are

    path_0.lockfile                        while an iterator fills the cache; other iterators raise an error
    path_0.data-00000-of-00001.tempstate…  the elements so far
    path.data-00000-of-00001, path.index   once the pass is complete

Names and behaviour are TensorFlow's, but the content is not. The index is JSON (a magic, the structure, the dtypes
and number of elements). The data has the leaves of each element, one after another. Each leaf is a dense tensor: its
number of dimensions (int64, little endian), its sizes, and its values (for strings, their lengths and bytes). Reading
it executes no code. A complete file is used even if its source has changed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from penstock.columns.facts import MOST_BYTES, Facts, parsed_object
from penstock.errors import FormatError
from penstock.tf.data.blocks import AnyBlock, Blocks
from penstock.tf.data.op import Op, Stream, elements, is_looking
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import (
    AlreadyExistsError,
    DataLossError,
    InvalidArgumentError,
    UnimplementedError,
    of_system,
)
from penstock.tf.nest import flatten, map_structure, packer
from penstock.tf.shapes import TypeSpec
from penstock.tf.tensor import Tensor

_MARK = "penstock.tf.data cache 1"


class MemoryCache(Op):
    """The elements of the first complete pass, which all later passes return."""

    passes_on = True

    def __init__(self, source: Op) -> None:
        self.source = source
        self._kept: tuple[Blocks | None, list[Any]] | None = None

    def begin(self) -> None:
        if self._kept is None:
            self.source.begin()

    def open(self) -> Stream:
        if self._kept is not None:
            kind, values = self._kept
            return iter(values) if kind is None else kind.like(iter(values))
        stream = self.source.open()
        if is_looking():
            return stream
        if isinstance(stream, Blocks):
            kind = stream.like(iter(()))
            return stream.like(self._filled(stream.blocks, kind))
        return self._filled(stream, None)

    def _filled(self, values: Iterator[Any], kind: Blocks | None) -> Iterator[Any]:
        kept: list[Any] = []
        for value in values:
            # The kept elements must not change when a caller modifies one.
            own: AnyBlock = value.kept() if kind is not None else value
            kept.append(own)
            yield own
        self._kept = kind, kept

    def cardinality(self) -> int:
        if self._kept is not None and self._kept[0] is None:
            return len(self._kept[1])
        return self.source.cardinality()

    def spec(self) -> Any:
        return self.source.spec()


class FileCache(Op):
    """The elements of the first complete pass, kept in a file that later programs can use."""

    passes_on = True

    def __init__(self, source: Op, path: str) -> None:
        self.source = source
        self.path = path

    @property
    def _data(self) -> str:
        return f"{self.path}.data-00000-of-00001"

    @property
    def _index(self) -> str:
        return f"{self.path}.index"

    def open(self) -> Stream:
        if os.path.exists(self._index):
            return self._read()
        if is_looking():
            return self.source.open()
        return self._written()

    def _written(self) -> Iterator[Any]:
        lock = f"{self.path}_0.lockfile"
        try:
            with open(lock, "x") as file:
                file.write(f"Created at: {int(time.time())}\n")
        except FileExistsError:
            raise AlreadyExistsError(
                None,
                None,
                "There appears to be a concurrent caching iterator running - cache lockfile already "
                f"exists ('{lock}'). If you are sure no other running TF computations are using this "
                "cache prefix, delete the lockfile and re-initialize the iterator.",
                file=lock,
            ) from None
        except OSError as error:
            raise of_system(error, lock) from error
        temporary = f"{self.path}_0.data-00000-of-00001.tempstate{os.getpid()}{time.monotonic_ns()}"
        try:
            with open(temporary, "wb") as file:
                facts: dict[str, Any] | None = None
                count = 0
                for element in elements(self.source.open()):
                    leaves = flatten(element, lists=False)
                    if facts is None:
                        facts = _facts(element, leaves)
                    for leaf in leaves:
                        _put(file, leaf)
                    count += 1
                    yield element
            facts = {
                "mark": _MARK,
                "num_elements": count,
                **(facts or {"dtypes": [], "structure": None}),
            }
            os.replace(temporary, self._data)
            with open(temporary, "w") as file:
                json.dump(facts, file)
            os.replace(temporary, self._index)
        finally:
            for path in (temporary, lock):
                if os.path.exists(path):
                    os.unlink(path)

    def _read(self) -> Iterator[Any]:
        kept = _kept_in(self._index)
        self._check(kept.names)
        pack = packer(kept.structure)
        dtypes = [as_dtype(name).dtype for name in kept.names]
        with open(self._data, "rb") as file:
            for number in range(kept.num_elements):
                try:
                    leaves = tuple(_get(file, dtype) for dtype in dtypes)
                except (ValueError, MemoryError) as error:
                    raise DataLossError(
                        None,
                        None,
                        f"the cache is truncated or damaged: {error}",
                        file=self._data,
                        record=number,
                    ) from error
                yield pack(leaves)

    def _check(self, found: list[str]) -> None:
        """Raise an error if the elements in the file have other types than those of the source, as far as these are
        known."""
        try:
            wanted = [
                s.dtype.name
                for s in flatten(self.source.spec(), lists=False)
                if isinstance(s, TypeSpec)
            ]
        except Exception:
            return  # the source may no longer exist, because the file replaces it
        if found and wanted != found:
            raise InvalidArgumentError(
                None,
                None,
                "the cache holds elements of other types than the dataset has",
                file=self._index,
                expected=wanted,
                found=found,
                hint="delete the cache, or give another name",
            )

    def cardinality(self) -> int:
        return self.source.cardinality()

    def spec(self) -> Any:
        return self.source.spec()


class _Kept(NamedTuple):
    """The contents of the index of a cache."""

    num_elements: int
    names: list[str]
    """The dtypes of an element's leaves."""
    structure: Any
    """An element, with the index of each leaf in place of the leaf."""


def _kept_in(path: str) -> _Kept:
    with open(path, "rb") as file:
        text = file.read(MOST_BYTES + 1)
    try:
        facts = parsed_object(text)
        if facts.text("mark") == _MARK:
            names, count = facts.texts("dtypes"), facts.count("num_elements")
            structure = _structure(facts.any("structure"))
            for name in names:
                as_dtype(name)
            # Elements without leaves are never written, because a file could claim any number of them at no
            # cost.
            leaves = flatten(structure, lists=False) if names else [None]
            if leaves == (list(range(len(names))) or [None]) and (names or not count):
                return _Kept(count, names, structure)
    except (FormatError, TypeError, RecursionError):
        pass
    raise InvalidArgumentError(
        None,
        None,
        "this is not a cache that penstock wrote; only TensorFlow can read a cache that TensorFlow wrote",
        file=path,
        hint="delete it, or give cache() another name",
    )


# -- elements in a file ---------------------------------------------------------------------------


def _facts(element: Any, leaves: list[Any]) -> dict[str, Any]:
    for leaf in leaves:
        if not isinstance(leaf, np.ndarray):
            raise UnimplementedError(
                None,
                None,
                f"a cache in a file holds dense tensors only, not {type(leaf).__name__}",
                hint="cache() in memory, or cache the records and parse them after it",
            )
    numbers = iter(range(len(leaves)))
    shape = map_structure(lambda _: next(numbers), element, lists=False)
    return {
        "dtypes": [as_dtype(leaf.dtype).name for leaf in leaves],
        "structure": _described(shape),
    }


def _described(structure: Any) -> Any:
    if isinstance(structure, dict):
        return {"dict": [[key, _described(value)] for key, value in structure.items()]}
    if isinstance(structure, tuple):
        return {"tuple": [_described(value) for value in structure]}
    return structure


def _structure(described: Any) -> Any:
    """The inverse of `_described`. Raises FormatError for anything else."""
    if not isinstance(described, dict):
        return described
    facts = Facts.of(described, "the structure")
    if "dict" not in facts:
        return tuple(_structure(value) for value in facts.list("tuple"))
    pairs = facts.list("dict")
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise FormatError("the structure is not one that a cache has")
    return {key: _structure(value) for key, value in pairs}


def _put(file: Any, leaf: Any) -> None:
    if not isinstance(leaf, np.ndarray):
        raise UnimplementedError(None, None, "a cache in a file holds dense tensors only")
    array = np.asarray(leaf)
    file.write(np.array([array.ndim, *array.shape], "<i8").tobytes())
    if array.dtype == object:
        values = array.ravel().tolist()
        file.write(np.array([len(value) for value in values], "<i8").tobytes())
        file.write(b"".join(values))
    else:
        file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())


def _get(file: Any, dtype: np.dtype[Any]) -> Tensor:
    (rank,) = _numbers(file, 1)
    if not 0 <= rank <= 64:
        raise ValueError(f"{rank} dimensions")
    shape = _numbers(file, rank)
    count = 1
    for size in shape:
        count *= size
    if count < 0 or any(size < 0 for size in shape):
        raise ValueError(f"a shape of {shape}")
    if dtype.kind != "O":
        data = _exactly(file, count * dtype.itemsize)
        return (
            np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape).view(Tensor)
        )
    lengths = _numbers(file, count)
    made = np.empty(count, object)
    made[:] = [_exactly(file, length) for length in lengths]
    return made.reshape(shape).view(Tensor)


def _numbers(file: Any, count: int) -> list[int]:
    return np.frombuffer(_exactly(file, 8 * count), "<i8").tolist()


def _exactly(file: Any, num_bytes: int) -> bytes:
    left = os.fstat(file.fileno()).st_size - file.tell() if num_bytes > 1 << 20 else num_bytes
    data = b"" if num_bytes < 0 or num_bytes > left else file.read(num_bytes)
    if len(data) != num_bytes:
        raise ValueError("it ends too early")
    return data
