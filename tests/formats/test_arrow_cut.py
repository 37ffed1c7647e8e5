"""Rows read from the middle of large record batches: they must equal the rows that pyarrow reads as a whole, and be
checked as carefully."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from damaging import SEED
from penstock.columns.types import VariableShapeTensorType
from penstock.formats.arrow import format as arrow
from penstock.formats.arrow._unpack import InTurn
from penstock.storage.local import LocalStorage
from reading import run_python

COUNT = 1003
"""The number of records; not a multiple of 8, so that bitmaps end inside a byte."""

TYPES: dict[str, Any] = {
    "bool": (pa.bool_(), lambda n: n % 3 == 0),
    "int8": (pa.int8(), lambda n: n % 100),
    "uint64": (pa.uint64(), lambda n: n << 40),
    "half": (pa.float16(), np.float16),
    "double": (pa.float64(), lambda n: n / 7),
    "date32": (pa.date32(), lambda n: dt.date(2000, 1, 1) + dt.timedelta(n)),
    "timestamp": (pa.timestamp("us", "UTC"), lambda n: n * 10**9),
    "duration": (pa.duration("ms"), lambda n: n),
    "time": (pa.time64("us"), lambda n: n),
    "decimal": (pa.decimal128(20, 3), lambda n: decimal.Decimal(n) / 8),
    "fixed": (pa.binary(5), lambda n: b"%5d" % n),
    "text": (pa.string(), lambda n: "ü" * (n % 11)),
    "bytes": (pa.large_binary(), lambda n: b"x" * (n % 7)),
    "list": (pa.list_(pa.int32()), lambda n: list(range(n % 5))),
    "texts": (pa.large_list(pa.string()), lambda n: [str(n)] * (n % 3)),
    "lists": (pa.list_(pa.list_(pa.bool_())), lambda n: [[n % 2 == 0] * k for k in range(n % 4)]),
    "pair": (pa.list_(pa.float32(), 2), lambda n: [n, -n]),
    "bits": (pa.list_(pa.bool_(), 3), lambda n: [n % 2 == 0, True, n % 5 == 0]),
    "struct": (
        pa.struct([("a", pa.int16()), ("b", pa.list_(pa.string()))]),
        lambda n: {"a": n, "b": None if n % 4 == 0 else ["q"] * (n % 3)},
    ),
    "nothing": (pa.struct([]), lambda _: {}),
    "map": (pa.map_(pa.string(), pa.int64()), lambda n: [(str(k), n) for k in range(n % 3)]),
    "view": (pa.string_view(), lambda n: f"{n:04}" * (n % 30)),
    "bytes_views": (pa.list_(pa.binary_view()), lambda n: [b"%4d" % n * (n % 20)] * (n % 3)),
    "tensor": (pa.fixed_shape_tensor(pa.int32(), (2, 2)), lambda n: [n, 1, 2, 3]),
    "images": (
        VariableShapeTensorType(pa.uint8(), 2),
        lambda n: {"data": [n % 256] * 2 * (n % 3), "shape": [n % 3, 2]},
    ),
}
WHOLE: dict[str, Any] = {
    "null": (pa.null(), lambda _: None),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), lambda n: str(n % 9)),
}
"""Types that are always read with their whole batch."""


def column(type_: Any, value: Any, nulls: bool) -> Any:
    values = [None if nulls and n % 7 == 3 else value(n) for n in range(COUNT)]
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, pa.array(values, type_.storage_type))
    return pa.array(values, type_)


def written(path: Path, batch: Any, kind: str = "file") -> Path:
    make = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
    codec = kind if kind in ("lz4", "zstd") else None
    with make(path, batch.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(batch)
    return path


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make penstock treat these small files as large ones."""
    monkeypatch.setattr(arrow, "PART_BYTES", 300)
    monkeypatch.setattr(arrow, "ARROW_WHOLE_BYTES", 600)
    monkeypatch.setattr(arrow, "RUN_BYTES", 100)
    monkeypatch.setattr(arrow, "RUN_COSTS", 0)


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", ["file", "stream", "lz4", "zstd"])
@pytest.mark.parametrize("name", [*TYPES, *WHOLE])
def test_every_type_is_as_pyarrow_reads_it(
    tmp_path: Path, name: str, nulls: bool, kind: str
) -> None:
    if name == "null" or (name == "images" and nulls):
        nulls = False
    values = column(*{**TYPES, **WHOLE}[name], nulls)
    batch = pa.record_batch({"n": pa.array(range(COUNT)), "x": values})
    path = written(tmp_path / "x.arrow", batch, kind)
    dataset = ps.open(path)
    got = list(dataset.scan(threads=2))
    whole = name in WHOLE or ("view" in name and kind in ("lz4", "zstd"))
    assert (len(got) > 5) != whole
    table = pa.Table.from_batches(got)
    assert table.column("n").to_pylist() == list(range(COUNT))
    wanted = batch.column("x").to_pylist()
    assert repr(table.column("x").to_pylist()) == repr(wanted)
    some = [*random.Random(SEED).sample(range(COUNT), 9), COUNT - 1, 0, 0]
    taken = dataset.take(some)
    assert repr(taken.column("x").to_pylist()) == repr([wanted[n] for n in some])
    alone = pa.Table.from_batches(dataset.scan(columns=["x"]))
    assert repr(alone.column("x").to_pylist()) == repr(wanted)


def test_slices_with_other_offsets_and_no_rows(tmp_path: Path) -> None:
    """pyarrow may write a slice whose offsets do not begin at 0, and an empty array without any offsets."""
    batch = pa.record_batch({k: column(*v, True) for k, v in TYPES.items() if k != "images"})
    for part in (batch.slice(13, 501), batch.slice(0, 0), batch.slice(COUNT - 1)):
        path = written(tmp_path / "x.arrow", part)
        dataset = ps.open(path)
        table = pa.Table.from_batches(dataset.scan(), dataset.schema)
        assert repr(table.to_pylist()) == repr(part.to_pylist())


@pytest.mark.parametrize("changes", [375, pytest.param(1500, marks=pytest.mark.stress)])
@pytest.mark.parametrize("kind", ["file", "lz4", "zstd"])
def test_every_changed_byte_is_an_error_or_as_pyarrow_reads_it(
    tmp_path: Path, kind: str, changes: int
) -> None:
    """Parts are checked as carefully as batches that pyarrow reads whole."""
    kept = ["bool", "text", "list", "struct", "fixed", "pair", "texts"]
    kept += ["view", "bytes_views"] if kind == "file" else []
    batch = pa.record_batch({k: column(*TYPES[k], True).slice(0, 60) for k in kept})
    path = written(tmp_path / "x.arrow", batch, kind)
    data = path.read_bytes()
    rng = random.Random(SEED)
    outcomes = {"same": 0, "error": 0}
    for _ in range(changes):
        changed = bytearray(data)
        for _ in range(rng.choice([1, 1, 3])):
            changed[rng.randrange(8, len(data))] = rng.choice(
                [0, 1, 127, 128, 255, rng.randrange(256)]
            )
        path.write_bytes(changed)
        try:
            parts = repr(pa.Table.from_batches(ps.open(path).scan(), None).to_pylist())
        except ps.PenstockError:
            outcomes["error"] += 1
            continue
        except (ValueError, UnicodeDecodeError):
            continue
        try:
            with pa.ipc.open_file(path) as reader:
                table = reader.read_all()
        except OSError as error:
            # pyarrow reads parts of the metadata that do not affect the values.
            assert "Invalid flatbuffers" in str(error)
            continue
        table.validate(full=True)
        assert parts == repr(table.to_pylist())
        outcomes["same"] += 1
    assert min(outcomes.values()) > changes // 15


@pytest.mark.parametrize("kind", ["file", "lz4", "zstd"])
def test_a_batch_as_large_as_the_file_takes_no_more_memory_than_its_parts(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "large.arrow"
    rng = np.random.default_rng(SEED)
    batch = pa.record_batch(
        {
            "x": pa.FixedSizeListArray.from_arrays(rng.random(40_000_000, np.float32), 400),
            "n": pa.array([str(n) for n in range(100_000)]),
        }
    )
    written(path, batch, kind)
    del batch
    code = """
        import sys
        import penstock as ps
        dataset = ps.open(sys.argv[1])
        rows = sum(batch.num_rows for batch in dataset.scan(threads=2))
        taken = dataset.take([99_999, 5])["n"].to_pylist()
        peak = next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if "VmHWM" in line)
        print(rows, taken, peak)
    """
    rows, one, two, peak = run_python(textwrap.dedent(code), str(path)).replace(",", "").split()
    assert (rows, one, two) == ("100000", "['99999'", "'5']")
    assert int(peak) < 250, f"{peak} MB"


def test_few_rows_of_a_large_batch_read_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    path = tmp_path / "images.arrow"
    images = [random.Random(n).randbytes(100_000) for n in range(200)]
    written(path, pa.record_batch({"n": pa.array(range(200)), "image": pa.array(images)}))

    class Counting(LocalStorage):
        """Counts the bytes that are read."""

        num_bytes = 0

        def open(self, path: str) -> Any:
            source = super().open(path)
            read = source.read

            def counted(start: int, length: int) -> Any:
                Counting.num_bytes += length
                return read(start, length)

            source.read = counted
            return source

    dataset = ps.open(path, storage=Counting())
    before = Counting.num_bytes
    assert dataset[77]["image"] == images[77]
    assert dataset.take([199, 3]).column("image").to_pylist() == [images[199], images[3]]
    assert Counting.num_bytes - before < 2_000_000


def test_parts_of_a_compressed_batch_can_be_read_in_any_order() -> None:
    """Each part is inflated once if parts are read in order; skipped parts are kept for later reads."""
    begun: list[int] = []

    def make() -> Any:
        begun.append(0)
        return lambda number: (number, begun.append(number))[0]

    in_turn = InTurn(make)
    assert [in_turn.part(number) for number in (2, 0, 1, 1, 3, 3)] == [2, 0, 1, 1, 3, 3]
    assert begun == [0, 0, 1, 2, 3]
    assert in_turn.part(0) == 0  # no longer kept
    assert begun == [0, 0, 1, 2, 3, 0, 0]


def test_parts_after_a_fault_are_the_same_fault() -> None:
    def make() -> Any:
        def part(number: int) -> int:
            if number == 2:
                raise ps.FormatError("broken", byte=7)
            return number

        return part

    in_turn = InTurn(make)
    assert in_turn.part(1) == 1
    for number in (2, 3, 2):
        with pytest.raises(ps.FormatError, match="broken") as raised:
            in_turn.part(number)
        assert raised.value.byte == 7
    assert in_turn.part(0) == 0


@pytest.mark.parametrize("kind", ["lz4", "zstd"])
def test_a_fault_in_a_compressed_batch_loses_everything_after_it(tmp_path: Path, kind: str) -> None:
    """Parts before the fault are delivered; everything after it is lost."""
    rng = random.Random(SEED)
    texts = [rng.randbytes(200).hex() for _ in range(2000)]
    path = written(tmp_path / "x.arrow", pa.record_batch({"text": texts}), kind)
    data = bytearray(path.read_bytes())
    at = len(data) // 2  # and further on, across the heads of the codec's blocks
    data[at : at + 200_000] = b"\xff" * 200_000
    path.write_bytes(data)
    with pytest.raises(ps.FormatError):
        list(ps.open(path).scan())
    for threads in (1, 2):
        dataset = ps.open(path, damage="skip")
        got = [
            text for batch in dataset.scan(threads=threads) for text in batch["text"].to_pylist()
        ]
        assert got == texts[: len(got)]
        assert sum(region.num_records or 0 for region in dataset.damage) == 2000 - len(got)


@pytest.mark.parametrize("claim", [-2, 0, 100, 10**6])
def test_lengths_of_compressed_buffers_are_not_believed(tmp_path: Path, claim: int) -> None:
    path = written(tmp_path / "x.arrow", pa.record_batch({"n": np.arange(3000) % 50}), "zstd")
    data = bytearray(path.read_bytes())
    at = data.index((3000 * 8).to_bytes(8, "little"), data.index(b"\x28\xb5\x2f\xfd") - 8)
    data[at : at + 8] = claim.to_bytes(8, "little", signed=True)
    path.write_bytes(data)
    with pytest.raises(ps.PenstockError):
        list(ps.open(path).scan())


def test_views_that_point_anywhere_are_read_where_they_point(tmp_path: Path) -> None:
    """Sorted, filtered or sliced views share their buffers with the original array."""
    rng = random.Random(SEED)
    texts = [
        rng.randbytes(rng.choice([3, 20, 9000])).hex()[: rng.choice([5, 40, 17000])]
        for _ in range(600)
    ]
    whole = pa.array(texts, pa.string_view())
    order = rng.sample(range(600), 500) + [7] * 20
    views = np.frombuffer(whole.buffers()[1], "<i4").reshape(-1, 4)[order]
    moved = pa.Array.from_buffers(
        pa.string_view(), len(order), [None, pa.py_buffer(views.copy()), *whole.buffers()[2:]]
    )
    path = written(tmp_path / "x.arrow", pa.record_batch({"text": moved}))
    wanted = [texts[n] for n in order]
    dataset = ps.open(path)
    got = list(dataset.scan(threads=2))
    assert len(got) > 5
    assert pa.Table.from_batches(got)["text"].to_pylist() == wanted
    assert dataset.take([519, 3, 77])["text"].to_pylist() == [wanted[n] for n in (519, 3, 77)]
    assert len(list(ps.open(path, mmap=True).scan())) == 1, "a mapped one is had for nothing"
