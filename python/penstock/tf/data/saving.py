"""`Dataset.save`, `load` and `snapshot`: the elements of a dataset in a folder, for later programs.

A folder holds `spec.json` (structure, specs and number of the elements) and `elements.tfrecord` (each leaf of each
element, serialized by `tf.io.serialize_tensor`). Folders that TensorFlow saved cannot be read.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from penstock.tf.data.op import UNKNOWN, Op, Stream, elements, is_looking
from penstock.tf.data.records import container_of, read_records
from penstock.tf.errors import AlreadyExistsError, DataLossError, NotFoundError, UnimplementedError
from penstock.tf.files import path_of
from penstock.tf.nest import flatten, is_nested, pack_sequence_as
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.shapes import RaggedTensorSpec, SparseTensorSpec, TensorSpec
from penstock.tf.sparse import SparseTensor
from penstock.tf.tensor import Tensor
from penstock.tf.tensor_proto import parse_tensor, serialize_tensor
from penstock.tf.writing import TFRecordWriter

_SPEC, _DATA = "spec.json", "elements.tfrecord"
_VERSION = 1
_KINDS = {"tensor": TensorSpec, "sparse": SparseTensorSpec, "ragged": RaggedTensorSpec}


def save(op: Op, path: Any, compression: str | None = None) -> None:
    """Write all elements of a dataset to a folder.

    Raises:
        AlreadyExistsError: the folder exists and holds other files.
        UnimplementedError: elements that are not tensors.
    """
    with _Writing(path_of(path), op.spec(), compression) as writing:
        for element in elements(op.open()):
            writing.write(element)


class _Writing:
    """A folder that is written under a temporary name, and renamed when it is complete."""

    def __init__(self, path: str, spec: Any, compression: str | None) -> None:
        if os.path.isdir(path) and os.listdir(path) and not os.path.exists(f"{path}/{_SPEC}"):
            raise AlreadyExistsError(None, None, f"{path} holds other files", file=path)
        self._path, self._spec, self._compression = path, spec, compression
        self._beside = f"{path.rstrip('/')}.{os.getpid()}.part"
        self._count = 0
        os.makedirs(self._beside, exist_ok=True)
        self._file = TFRecordWriter(f"{self._beside}/{_DATA}", compression or "")

    def __enter__(self) -> Self:
        return self

    def write(self, element: Any) -> None:
        for leaf in flatten(element, lists=False):
            for part in _parts(leaf):
                self._file.write(serialize_tensor(part).item())
        self._count += 1

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._file.close()
        if kind is None:
            facts = {
                "version": _VERSION,
                "elements": self._count,
                "compression": self._compression or "",
                "structure": _described(self._spec),
            }
            with open(f"{self._beside}/{_SPEC}", "w") as file:
                json.dump(facts, file)
            shutil.rmtree(self._path, ignore_errors=True)
            os.replace(self._beside, self._path)
        else:
            shutil.rmtree(self._beside, ignore_errors=True)


def _parts(leaf: Any) -> list[Any]:
    """The tensors of a leaf."""
    if isinstance(leaf, SparseTensor):
        return [leaf.indices, leaf.values, leaf.dense_shape]
    if isinstance(leaf, RaggedTensor):
        return [leaf.flat_values, *leaf.nested_row_splits]
    if isinstance(leaf, np.ndarray):
        return [leaf]
    raise UnimplementedError(
        None, None, f"an element of type {type(leaf).__name__} cannot be saved"
    )


def _described(spec: Any) -> Any:
    """A structure of specs for JSON."""
    if is_nested(spec, lists=False):
        if isinstance(spec, dict):
            return {"dict": [[key, _described(each)] for key, each in spec.items()]}
        return {"tuple": [_described(each) for each in spec]}
    for name, kind in _KINDS.items():
        if type(spec) is kind:
            made = {"kind": name, "shape": spec.shape.dims, "dtype": spec.dtype.name}
            if isinstance(spec, RaggedTensorSpec):
                made |= {"rank": spec.ragged_rank, "splits": spec.row_splits_dtype.name}
            return made
    raise UnimplementedError(None, None, f"elements of {spec!r} cannot be saved")


def _spec_of(described: Any) -> Any:
    if "dict" in described:
        return {key: _spec_of(each) for key, each in described["dict"]}
    if "tuple" in described:
        return tuple(_spec_of(each) for each in described["tuple"])
    kind, shape, dtype = described["kind"], described["shape"], described["dtype"]
    if kind == "ragged":
        return RaggedTensorSpec(shape, dtype, described["rank"], described["splits"])
    return _KINDS[kind](shape, dtype)


class Loaded(Op):
    """The elements of a folder that `save` wrote."""

    def __init__(self, path: Any, compression: str | None = None) -> None:
        self._path = path_of(path)
        try:
            with open(f"{self._path}/{_SPEC}") as file:
                facts = json.load(file)
            self._count = int(facts["elements"])
            self._container = container_of(facts["compression"])
            self._spec = _spec_of(facts["structure"])
        except FileNotFoundError:
            raise NotFoundError(
                None,
                None,
                f"{self._path} is not a folder that Dataset.save of penstock.tf wrote",
                file=self._path,
                hint="only TensorFlow reads folders that TensorFlow saved",
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise DataLossError(
                None, None, f"{_SPEC} is damaged: {error}", file=self._path
            ) from error

    def open(self) -> Stream:
        return self._run()

    def _run(self) -> Iterator[Any]:
        specs = flatten(self._spec, lists=False)
        records = self._records()
        for _ in range(self._count):
            yield pack_sequence_as(self._spec, [_read(s, records) for s in specs], lists=False)

    def _records(self) -> Iterator[bytes]:
        from penstock.tf.data.blocks import Blocks

        blocks = Blocks(read_records(f"{self._path}/{_DATA}", self._container), None, (True,))
        return (record.item() for record in blocks.elements())

    def cardinality(self) -> int:
        return self._count

    def spec(self) -> Any:
        return self._spec


def _read(spec: Any, records: Iterator[bytes]) -> Any:
    """The next leaf."""
    try:
        if isinstance(spec, SparseTensorSpec):
            indices, values = parse_tensor(next(records), "int64"), next(records)
            shape = parse_tensor(next(records), "int64")
            return SparseTensor(indices, parse_tensor(values, spec.dtype), shape)
        values = parse_tensor(next(records), spec.dtype)
        if isinstance(spec, RaggedTensorSpec) and spec.ragged_rank:
            splits = [
                parse_tensor(next(records), spec.row_splits_dtype) for _ in range(spec.ragged_rank)
            ]
            return RaggedTensor.from_nested_row_splits(values, splits)
    except StopIteration:
        raise DataLossError(None, None, "the file with the saved elements is truncated") from None
    return values


class Snapshot(Op):
    """The elements of a dataset, kept in a folder by the first complete pass and read from there by later ones."""

    def __init__(self, source: Op, path: Any, compression: str | None) -> None:
        self.source = source
        self._path = path_of(path)
        self._compression = None if compression in {"AUTO", "SNAPPY"} else compression

    def open(self) -> Stream:
        if os.path.exists(f"{self._path}/{_SPEC}"):
            return Loaded(self._path).open()
        return self.source.open() if is_looking() else self._kept()

    def _kept(self) -> Iterator[Tensor]:
        with _Writing(self._path, self.source.spec(), self._compression) as writing:
            for element in elements(self.source.open()):
                writing.write(element)
                yield element

    def cardinality(self) -> int:
        known = self.source.cardinality()
        return UNKNOWN if known < 0 else known

    def spec(self) -> Any:
        return self.source.spec()
