"""Whatever can be scanned can be used: with rare types of columns, each verb gives a result or one of penstock's
errors, and never an unexpected exception."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.columns.types import ImageType, VariableShapeTensorType

FAR = 1 << 62
LISTS = [pa.list_, pa.large_list, pa.list_view, lambda item: pa.list_(item, 1)]
INTERVAL = pa.month_day_nano_interval()


def _moments() -> Iterator[Any]:
    for unit in ("s", "ms", "us", "ns"):
        yield pa.array([FAR, None, -FAR], pa.duration(unit))
        for zone in (None, "UTC", "+05:00", "No/Where"):
            yield pa.array([FAR, -FAR, 0]).cast(pa.timestamp(unit, zone))
    yield pa.array([2**31 - 1, -(2**31)], pa.int32()).view(pa.date32())
    yield pa.array([90_000, -1], pa.int32()).view(pa.time32("s"))
    yield pa.array([FAR, 1001]).view(pa.time64("ns"))
    yield pa.array([1001, None]).view(pa.time64("ns"))
    yield pa.array([(1, 2, 3), None], INTERVAL)


def _inside() -> Iterator[Any]:
    for list_ in LISTS:
        yield (
            pa.array([[(1, 2, 3)]], list_(INTERVAL))
            if list_ is not pa.list_view
            else pa.array([[1]])
        )
        yield pa.array([[FAR]], list_(pa.duration("s")))
        yield pa.array([["a"], None], list_(pa.string()))
    yield pa.array([{"a": (1, 2, 3)}], pa.struct([("a", INTERVAL)]))
    yield pa.array([{"a": FAR}], pa.struct([("a", pa.duration("us"))]))
    yield pa.array([[("a", (1, 2, 3))]], pa.map_(pa.string(), INTERVAL))
    yield pa.array([[("a", 1), ("a", 2)], None], pa.map_(pa.string(), pa.int64()))
    yield pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    yield pa.array([{}, None], pa.struct([]))
    yield pa.array([[None], []], pa.list_(pa.null()))
    yield pa.array([[[[1]]]], pa.list_(pa.list_(pa.list_(pa.int64()))))


def _coded() -> Iterator[Any]:
    places = pa.array([0, 1], pa.int8())
    for values in (
        ["a", None],
        ["a", "a"],
        [[1], [2]],
        [1.5, 2.5],
        [b"a", b"\xff"],
        [{"a": 1}, None],
    ):
        yield pa.DictionaryArray.from_arrays(places, pa.array(values))
    yield pa.DictionaryArray.from_arrays(pa.array([None], pa.int32()), pa.array([], pa.string()))
    yield pa.array([FAR], pa.duration("s")).dictionary_encode()
    for values in ([1, 2], ["a", None], [[1], [2]]):
        yield pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int16()), pa.array(values))
    yield pa.UnionArray.from_sparse(places, [pa.array([1, 2]), pa.array(["a", "b"])])
    offsets = pa.array([0, 0], pa.int32())
    yield pa.UnionArray.from_dense(places, offsets, [pa.array([1]), pa.array(["b"])])
    yield pa.ExtensionArray.from_storage(ImageType("jpeg"), pa.array([b"none"]))
    yield pa.ExtensionArray.from_storage(pa.json_(), pa.array(["[" * 100_000, "1e999"]))
    yield pa.ExtensionArray.from_storage(pa.bool8(), pa.array([7], pa.int8()))


def _tensors() -> Iterator[Any]:
    def fixed(shape: list[int], rows: list[Any], value: Any = None, **options: Any) -> Any:
        kind = pa.fixed_shape_tensor(value or pa.int64(), shape, **options)
        return pa.ExtensionArray.from_storage(kind, pa.array(rows, kind.storage_type))

    yield fixed([2, 2], [[1, 2, 3, 4]], permutation=[1, 0])
    yield fixed([], [[1], [2]])
    yield fixed([1], [["a"]], pa.string())
    yield fixed([1], [[FAR]], pa.duration("s"))
    for data, shape in (
        (2, [2]),
        (2, [3]),
        (2, [-2]),
        (0, [0]),
        (None, [1]),
        (1, None),
        (1, [None]),
    ):
        kind = VariableShapeTensorType(pa.int64(), 1)
        values = None if data is None else list(range(data))
        row = {"data": values, "shape": shape}
        yield pa.ExtensionArray.from_storage(kind, pa.array([None, row], kind.storage_type))
    kind = VariableShapeTensorType(pa.int64(), 2)
    row = {"data": [1], "shape": [2**31 - 1] * 2}
    yield pa.ExtensionArray.from_storage(kind, pa.array([row], kind.storage_type))


def _numbers() -> Iterator[Any]:
    yield pa.array([10**37, None], pa.decimal128(38, 0))
    yield pa.array([10**70], pa.decimal256(76, 0))
    yield pa.array([b"", b""], pa.binary(0))
    yield pa.array([np.float16(1), None], pa.float16())
    yield pa.array([2**64 - 1], pa.uint64())
    yield pa.array([None, None])
    for kind in (
        pa.int64(),
        pa.string(),
        pa.list_(pa.int64()),
        pa.dictionary(pa.int8(), pa.string()),
    ):
        yield pa.array([], kind)


TARGETS = ("arrow", "parquet", "msgpack", "npz", "h5", "tar", "tfrecord", "beton", "rec")


def _words(path: str, targets: Sequence[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "item", lambda: ps.open(path)[0]
    yield "records", lambda: list(ps.open(path))
    yield "take", lambda: ps.open(path).take([0, 0])
    for ragged in ("offsets", "pad", "list"):
        yield ragged, lambda ragged=ragged: list(ps.Loader(ps.open(path), 1, ragged=ragged))
    yield "copy", lambda: list(ps.Loader(ps.open(path), 2, order=ps.Shuffled(0), cache="memory"))
    yield "stats", lambda: repr(ps.stats(path))
    yield "diff", lambda: ps.diff(path, path)
    yield "verify", lambda: ps.verify(path)
    for to in targets:
        yield to, lambda to=to: ps.convert(path, f"{path}.to.{to}", overwrite=True)


@pytest.mark.parametrize("kind", [_moments, _inside, _coded, _tensors, _numbers])
@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.stress)])
def test_odd_columns_end_in_answers_or_errors_of_the_tree(
    tmp_path: Path, kind: Callable[[], Iterator[Any]], suffix: str, step: int
) -> None:
    """Each column is converted to every third format, and with `make stress` to all of them."""
    strays: list[str] = []
    for place, array in enumerate(kind()):
        path = str(tmp_path / f"{place}.{suffix}")
        table = pa.table({"x": array})
        try:
            if suffix == "parquet":
                pq.write_table(table, path)
            else:
                with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table)
        except (pa.ArrowException, ValueError, OSError):
            continue  # pyarrow cannot write such a file
        for word, call in _words(path, TARGETS[place % step :: step]):
            try:
                call()
            except (ps.PenstockError, OSError):
                continue
            except Exception as error:
                strays.append(f"{array.type}: {word}: {type(error).__name__}: {error}")
    assert not strays, "\n".join(strays)


@pytest.mark.parametrize(
    "name", ["penstock.image", "arrow.fixed_shape_tensor", "arrow.variable_shape_tensor"]
)
@pytest.mark.parametrize("said", [b"[" * 200_000, b'{"shape":[1e400]}', b'{"codec":{}}', b"\0"])
@pytest.mark.parametrize(
    "storage", [pa.array([b"a"]), pa.array([1]), pa.array([[1]], pa.list_(pa.int64(), 1))]
)
def test_metadata_of_types_is_read_with_bounds(
    tmp_path: Path, name: str, said: bytes, storage: Any
) -> None:
    metadata = {b"ARROW:extension:name": name.encode(), b"ARROW:extension:metadata": said}
    schema = pa.schema([pa.field("x", storage.type, metadata=metadata)])
    path = str(tmp_path / "a.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write(pa.RecordBatch.from_arrays([storage], schema=schema))
    try:
        list(ps.open(path).scan())
    except ps.PenstockError:
        return
    ps.convert(path, tmp_path / "b.tar")
