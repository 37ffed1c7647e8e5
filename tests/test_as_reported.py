"""What strangers found when they tried every line of the promises: each a plain test."""

from __future__ import annotations

import gzip
import os
import random
import struct
import subprocess
import sys
import tarfile
import textwrap
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import frames
import penstock as ps
from penstock import _core
from penstock.formats import arrow_batches
from penstock.framing import chains as chains_of
from penstock.framing import gzip_members
from penstock.framing.chains import Chains
from penstock.framing.forward import Inflation
from penstock.framing.framed import FramedReader
from penstock.framing.framings import TFRECORD


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("empty", [0, 1])
def test_a_set_may_have_compressed_shards_without_records(
    tmp_path: Path, compress: Callable[[bytes], bytes], empty: int
) -> None:
    """As Beam writes them, under names that say nothing of the format."""
    for shard in (0, 1):
        data = b"" if shard == empty else frames.file_of([b"a", b"b"])
        (tmp_path / f"x-0000{shard}-of-00002").write_bytes(compress(data))
    assert len(ps.open(f"{tmp_path}/x@2", index="never", raw=True)) == 2
    assert ps.verify(f"{tmp_path}/x@2").ok


def test_a_folder_for_indexes_may_be_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1, 2]}, path, index=False)
    assert ps.open(path, index=tmp_path / "new")[1] == {"a": 2}
    assert len(list((tmp_path / "new").iterdir())) == 1
    words: list[Any] = [None, 5, False, b"new"]
    for word in words:
        with pytest.raises(TypeError, match=r"'auto', 'never' or a folder|by text"):
            ps.open(path, index=word)
    with pytest.raises(NotADirectoryError, match="takes a folder"):
        ps.open(path, index=str(path))


def test_a_condition_on_a_field_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    with pytest.raises(ps.SchemaError, match="no such column; there are: a"):
        ps.convert(tmp_path / "a.tfrecord", tmp_path / "b.parquet", where="nope > 3")
    assert not (tmp_path / "b.parquet").exists()


def test_a_value_that_a_message_cannot_hold_names_record_and_field(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    ps.write({"id": [1], "b": [b"\xff\xfe"]}, tmp_path / "a.tfrecord")
    with pytest.raises(ps.SchemaError, match="does not fit string") as raised:
        list(ps.open(tmp_path / "a.tfrecord", schema=descriptor_pb2.FileDescriptorProto).scan())
    assert (raised.value.record, raised.value.field) == (0, "name")


def test_a_limit_met_by_an_index_names_the_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of([b"", b"1234"]))
    ps.index(path)
    with pytest.raises(ps.LimitError) as raised:
        ps.open(path, raw=True, limits={"record_bytes": 3}).take([0, 1])
    assert (raised.value.file, raised.value.record, raised.value.byte) == (str(path), 1, 16)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "in the middle")])
def test_an_arrow_stream_is_no_shorter_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "a.arrows"
    batch = pa.record_batch({"n": range(10)})
    with pa.ipc.new_stream(path, batch.schema) as writer:
        for _ in range(5):
            writer.write_batch(batch)
    dataset = ps.open(path)
    walk = arrow_batches.walk_stream

    def broken(*given: Any) -> Any:
        for number, message in enumerate(walk(*given)):
            if number == 3:
                raise error
            yield message

    with monkeypatch.context() as patch:
        patch.setattr(arrow_batches, "walk_stream", broken)
        with pytest.raises(type(error)):
            len(dataset)
    assert len(dataset) == 50
    assert sum(batch.num_rows for batch in dataset.scan()) == 50


def test_the_index_of_an_empty_file_fits_no_other_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    tarfile.open(path, "w").close()
    assert len(ps.open(path)) == 0
    assert Path(f"{path}.penstock").exists()
    size = path.stat().st_size
    ps.write({"__key__": ["a", "b"], "txt": ["1", "2"]}, tmp_path / "b.tar")
    os.replace(tmp_path / "b.tar", path)
    assert path.stat().st_size == size
    assert len(ps.open(path)) == 2
    assert ps.verify(path).num_records == 2


def test_damaged_heads_at_the_end_cost_nothing_with_an_index(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    payloads = [b"%4d" % n * 20 for n in range(20)]
    path.write_bytes(frames.file_of(payloads))
    ps.index(path)
    data = bytearray(path.read_bytes())
    for start in frames.starts_of(payloads)[18:20]:
        data[start] ^= 0x55
        data[start + 5] ^= 0x55
    path.write_bytes(data)
    dataset = ps.open(path, raw=True, damage="skip")
    scanned = [x for batch in dataset.scan() for x in batch["record"].to_pylist()]
    assert scanned == payloads == dataset.take(range(20))["record"].to_pylist()
    assert ps.repair(path, into=tmp_path / "b.tfrecord").num_records == 20


def test_what_a_compressed_batch_claims_is_checked_before_parts_are_planned(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    batch = pa.record_batch({"n": np.zeros(3000, np.int64)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    data = path.read_bytes()
    for true, claimed in [(24_000, 1 << 45), (3000, 1 << 42)]:
        data = data.replace(true.to_bytes(8, "little"), claimed.to_bytes(8, "little"))
    path.write_bytes(data)
    for call in (lambda: list(ps.open(path).scan()), lambda: ps.open(path).take([1])):
        tracemalloc.start()
        with pytest.raises(ps.LimitError, match="batch_bytes"):
            call()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 10 << 20, "no plan is made of two million parts"
    assert [finding.kind for finding in ps.verify(path).findings] == ["limit"]


def test_ctrl_c_while_inflating_leaves_the_dataset_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(frames.file_of([b"%8d" % n for n in range(100_000)])))
    dataset = ps.open(path, raw=True, index="never")
    push = Inflation._push

    def interrupted(self: Inflation, *given: Any) -> Any:
        """The signal comes when input has been taken, and before that is noted."""
        before = self._input, self._more
        push(self, *given)
        self._input, self._more = before
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Inflation, "_push", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(dataset.scan(threads=1))
    assert sum(batch.num_rows for batch in dataset.scan()) == 100_000


def test_a_forked_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": np.arange(6_000_000)}), path, row_group_size=6_000_000)
    code = """
        import os, sys, threading
        import penstock as ps
        dataset = ps.open(sys.argv[1])
        reader = dataset.files.reader(0)
        chunks = list(reader.chunks())
        assert len(chunks) > 1
        reader._pending[(0, ("n",))] = [1]  # as a thread that is at work has it when another forks
        child = os.fork()
        if not child:
            rows = sum(batch.num_rows for batch in dataset.scan(threads=2))
            os._exit(0 if rows == 6_000_000 else 1)
        print(os.waitpid(child, 0)[1])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "0\n", done.stderr


@pytest.mark.parametrize(
    "metadata",
    [
        {"penstock.inferred_from": "all " + "9" * 5000 + " records of x"},
        {"penstock.inferred_from": "all 2 records of x", "penstock.in_every_record": "{{"},
        {"penstock.inferred_from": "all 2 records of x", "penstock.in_every_record": "3"},
    ],
)
def test_a_stored_schema_is_not_inferred_whatever_its_metadata_says(
    tmp_path: Path, metadata: dict[str, str]
) -> None:
    table = pa.table({"a": [1, 2]})
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    pq.write_table(table.append_column("b", [[3, 4]]), tmp_path / "b.parquet")
    dataset = ps.open([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert [row["a"] for row in dataset] == [1, 2, 1, 2]


class _Bytes:
    """A stream in memory that counts what is read of it."""

    container = ""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.num_bytes_read = 0

    def read(self, start: int, length: int) -> _core.Buffer:
        part = self._data[start : start + length]
        self.num_bytes_read += len(part)
        return _core.Buffer.from_bytes(part)

    def size(self) -> int:
        return len(self._data)


def test_a_chain_of_heads_is_followed_once() -> None:
    record = frames.frame(b"x" * 84)
    stream: Any = _Bytes(record * 40_000 + b"\xff" * 50 + record)
    chains = Chains(stream, TFRECORD)
    size = stream.size()
    assert not chains.follow(0).is_out
    assert stream.num_bytes_read < 1.1 * size
    for place in range(100, 40_000 * 100, 100 * 97):
        assert chains.follow(place).to == 40_000 * 100
    assert stream.num_bytes_read < 1.1 * size
    # A chain that joins it is followed as far as that.
    assert chains.follow(size - 100).is_out


def test_places_are_forgotten_in_the_order_of_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains_of, "_KEPT_PLACES", 10)
    record, junk = frames.frame(b""), b"\xff" * 16
    stream: Any = _Bytes(record * 12 + junk + record + junk + record + junk)
    chains = Chains(stream, TFRECORD)
    chains.follow(0)
    assert chains.known(11 * 16) is not None
    chains.follow(13 * 16)
    assert chains.known(13 * 16) is not None, "there was room for one chain more"
    chains = Chains(stream, TFRECORD)
    chains.follow(0)
    chains.follow(5 * 16)
    assert chains.known(11 * 16) is not None
    chains.follow(13 * 16)
    assert chains.known(2 * 16) is None, "what was passed is forgotten where there are too many"


def test_a_file_of_broken_members_is_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = [frames.gzip_member(frames.frame(b"%d" % number), 1) for number in range(400)]
    for number in range(1, 400, 2):
        members[number][24] |= 6  # a type of block that there is not
    path = tmp_path / "x.tfrecord.gz"
    path.write_bytes(b"".join(members))
    num_hops = 0
    hop = gzip_members.hop

    def counted(source: Any, start: int = 0, dead: Any = ()) -> Any:
        nonlocal num_hops
        found = hop(source, start, dead)
        num_hops += len(found[0])
        return found

    monkeypatch.setattr(gzip_members, "hop", counted)
    dataset = ps.open(path, raw=True, damage="skip")
    rows = [row["record"] for row in dataset]
    assert rows == [b"%d" % number for number in range(0, 400, 2)]
    assert num_hops < 4 * 400


def test_what_follows_a_bad_record_is_not_read_again_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.tfrecord"
    bad = b"\x0a\x05no"  # an Example cut short, behind a checksum that is right
    good = b"\x0a\x0b\x0a\x09\x0a\x01a\x12\x04\x0a\x02\x0a\x00"
    path.write_bytes(b"".join(frames.frame(bad if n % 4 == 3 else good) for n in range(8_000)))
    ps.index(path)
    num_rows = 0
    decode = FramedReader.decode

    def counted(reader: Any, chunk: Any, records: Any, columns: Any) -> Any:
        nonlocal num_rows
        num_rows += chunk.num_records if records is None else len(records)
        return decode(reader, chunk, records, columns)

    monkeypatch.setattr(FramedReader, "decode", counted)
    dataset = ps.open(path, damage="skip", schema=pa.schema({"a": pa.binary()}))
    assert sum(batch.num_rows for batch in dataset.scan(threads=1)) == 6_000
    assert num_rows < 8_000 * 40


def test_a_folder_for_indexes_is_made_by_every_verb(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1, 2]}, path, index=tmp_path / "of_write")
    ps.convert(path, tmp_path / "b.tfrecord", index=str(tmp_path / "of_convert"))
    ps.repair(path, into=tmp_path / "c.tfrecord", index=str(tmp_path / "of_repair"))
    ps.index(path, folder=tmp_path / "of_index")
    ps.append({"a": [3]}, path, index=str(tmp_path / "of_append"))
    made = sorted(entry.name for entry in tmp_path.iterdir() if entry.is_dir())
    assert made == ["of_append", "of_convert", "of_index", "of_repair", "of_write"]
    assert all(len(list((tmp_path / name).iterdir())) == 1 for name in made)


@pytest.mark.parametrize("window_bits", range(9, 16))
@pytest.mark.parametrize("level", [0, 1, 9])
def test_zlib_files_of_any_window_are_told_by_their_bytes(
    tmp_path: Path, window_bits: int, level: int
) -> None:
    path = tmp_path / "x"
    payloads = [b"%d" % number * 50 for number in range(500)]
    engine = zlib.compressobj(level, zlib.DEFLATED, window_bits)
    path.write_bytes(engine.compress(frames.file_of(payloads)) + engine.flush())
    assert [row["record"] for row in ps.open(path, raw=True)] == payloads
    assert len(ps.open(path, raw=True, compression="zlib")) == 500
    assert ps.verify(path).ok


def test_numbers_beyond_any_integer_are_those_of_no_record(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord")
    for wrong in (2**70, -(2**70)):
        with pytest.raises(ps.RecordIndexError, match=f"no record {wrong} among 2"):
            dataset.take([0, wrong])
        with pytest.raises(ps.RecordIndexError):
            dataset[wrong]
    assert dataset.take(np.array([1, 0], dtype=object)).column(0).to_pylist() == [2, 1]


@pytest.mark.parametrize("key", [b"penstock.key", b"other", b"\xff"])
@pytest.mark.parametrize("ending", ["tfrecord", "msgpack", "tar", "arrow", "npz"])
def test_metadata_of_a_field_may_be_any_bytes(tmp_path: Path, key: bytes, ending: str) -> None:
    field = pa.field("a", pa.int64(), metadata={key: b"\xff\xfe"})
    pq.write_table(pa.table([[1, 2]], schema=pa.schema([field])), tmp_path / "a.parquet")
    ps.convert(tmp_path / "a.parquet", tmp_path / f"b.{ending}")
    assert [row["a"] for row in ps.open(tmp_path / f"b.{ending}")] == [1, 2]


def test_a_length_that_none_can_be_hides_no_head_that_can_be_restored(tmp_path: Path) -> None:
    """The first candidate for a damaged length is the one that stands there, however large."""
    rng = random.Random(1)
    payloads = [rng.randbytes(100_000) for _ in range(60)]
    starts = frames.starts_of(payloads)
    data = bytearray(frames.file_of(payloads))
    for record, place, change in [(5, 4, 15), (15, 1, 1), (16, 1, 1), (30, 1, 1), (31, 1, 1)]:
        data[starts[record] + place] ^= change
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(bytes(data), 1))
    assert ps.repair(path, into=tmp_path / "b.tfrecord.gz").num_records == 60


@pytest.mark.parametrize("value", [2.0, 1.9999, -2.0])
def test_a_number_that_looks_like_a_head_of_anything_leads_nowhere(
    tmp_path: Path, value: float
) -> None:
    inner = frames.file_of([struct.pack("<d", value), b"inner"])
    payloads = [b"first", inner] + [b"record %d" % number for number in range(20)]
    data = bytearray(frames.file_of(payloads))
    for place in (0, 5, 40):
        data[frames.starts_of(payloads)[1] + place] ^= 0x55
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    dataset = ps.open(path, raw=True, damage="skip", index="never")
    assert [row["record"] for row in dataset] == [payloads[0], *payloads[2:]]


def test_wrong_payloads_along_a_chain_of_records_cost_no_others(tmp_path: Path) -> None:
    payloads = [
        b"record %d" % n if n % 3 else frames.file_of([b"value %d" % n, b"%08d" % n])
        for n in range(100)
    ]
    starts = frames.starts_of(payloads)
    data = bytearray(frames.file_of(payloads))
    for place in (starts[1] + 12, starts[3] + 26, starts[90] + 13):
        data[place] ^= 1
    for place in (starts[90], starts[90] + 3):
        data[place] ^= 0x55
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    dataset = ps.open(path, raw=True, damage="skip", index="never")
    right = [payloads[n] for n in range(100) if n not in (1, 3, 90)]
    assert [row["record"] for row in dataset] == right


def test_thousands_of_faults_end_no_salvage_of_frames_without_checksums(tmp_path: Path) -> None:
    rng = random.Random(2)
    payloads = [b"%07d" % number + b"x" * 30 for number in range(60_000)]
    path = tmp_path / "a.rec"
    ps.write({"record": payloads}, path, format="recordio", index=False)
    data = bytearray(path.read_bytes())
    bad = rng.sample(range(59_000), 8_000)
    for record in bad:
        data[record * 48] ^= 0x55
    path.write_bytes(data)
    report = ps.repair(path, into=tmp_path / "b.rec", format="recordio", salvage=True)
    assert report.num_records == 52_000


def test_shards_of_whole_numbers_and_of_floats_have_no_type_in_common(tmp_path: Path) -> None:
    for shard, value in enumerate([1, 1.5]):
        ps.write([{"a": value}] * 3, tmp_path / f"s-0000{shard}-of-00002", format="tfrecord")
    with pytest.raises(ps.SchemaError, match="types that have none in common"):
        ps.open(f"{tmp_path}/s@2", infer_records="all")
    dataset = ps.open(f"{tmp_path}/s@2")
    assert dataset.schema.field("a").type == pa.int64()
    with pytest.raises(ps.SchemaError, match="holds float values"):
        list(dataset)


def test_two_sets_of_one_name_are_not_read_as_one(tmp_path: Path) -> None:
    ps.write({"i": range(7)}, tmp_path / "x.tfrecord", num_shards=3)
    ps.write({"i": [100, 101]}, tmp_path / "x.tfrecord", num_shards=2)
    for source in (f"{tmp_path}/x@*.tfrecord", str(tmp_path), f"{tmp_path}/x-*"):
        with pytest.raises(ValueError, match=r"x@2\.tfrecord and .*x@3\.tfrecord are 2 sets"):
            ps.open(source)
    assert len(ps.open(f"{tmp_path}/x@2.tfrecord")) == 2
    (tmp_path / "x-00001-of-00003.tfrecord").unlink()
    (tmp_path / "x-00000-of-00002.tfrecord").unlink()
    (tmp_path / "x-00001-of-00002.tfrecord").unlink()
    with pytest.raises(FileNotFoundError, match=r"x@3\.tfrecord: shard 1 of 3 is missing;"):
        ps.open(tmp_path)


def test_a_description_for_tensorflow_holds_for_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ps.write([{"a": 1}, {"a": 2}], tmp_path / "s-00000-of-00002.tfrecord")
    ps.write([{"b": [1, 2]}], tmp_path / "s-00001-of-00002.tfrecord")
    found = ps.schemas(f"{tmp_path}/s@2.tfrecord")
    assert "'a': tf.io.VarLenFeature(tf.int64)" in ps.features.describe(found.schema)


def test_a_field_called_as_the_mark_of_salvage_is_told(tmp_path: Path) -> None:
    ps.write({"unproved": [1, 2]}, tmp_path / "a.tfrecord")
    with pytest.raises(ps.SchemaError, match="there is such a field"):
        ps.open(tmp_path / "a.tfrecord", damage="salvage")
    assert len(ps.open(tmp_path / "a.tfrecord", damage="salvage", raw=True)[:].to_pylist()) == 2


@pytest.mark.parametrize("said", ["gzip", "zlib", ""])
def test_what_is_said_of_the_compression_counts_with_an_index_as_well(
    tmp_path: Path, said: str
) -> None:
    true = "" if said else "gzip"
    path = tmp_path / "a.tfrecord"
    ps.write({"i": range(10)}, path, compression=true or None)
    assert (tmp_path / "a.tfrecord.penstock").exists()
    with pytest.raises(ps.FormatError):
        ps.open(path, compression=said, raw=True).take([0, 5])
    assert ps.open(path).take([0, 5])["i"].to_pylist() == [0, 5], "the index is as it was"


@pytest.mark.parametrize("window_bits", [9, 12, 15])
def test_empty_zlib_files_of_any_window(tmp_path: Path, window_bits: int) -> None:
    engine = zlib.compressobj(6, zlib.DEFLATED, window_bits)
    (tmp_path / "z.bin").write_bytes(engine.compress(b"") + engine.flush())
    assert len(ps.open(tmp_path / "z.bin", raw=True, index="never")) == 0


def test_arrays_without_a_dimension_are_scalars(tmp_path: Path) -> None:
    ps.write([{"a": np.array(3)}, {"a": np.array(4)}] * 2000, tmp_path / "a.parquet")
    dataset = ps.open(tmp_path / "a.parquet")
    assert dataset.schema.field("a").type == pa.int64()
    assert dataset[3999] == {"a": 4}


def test_what_has_no_order_or_no_path_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1], "b": [2]}, path)
    with pytest.raises(TypeError, match="a set does not have"):
        ps.open({str(path)})
    with pytest.raises(TypeError, match="a set has no order"):
        ps.open(path, columns={"a", "b"})  # type: ignore[arg-type]
    with path.open("rb") as file, pytest.raises(TypeError, match="open file is no path"):
        ps.open(file)
    for limit in (-1, "1MB", 1.5):
        with pytest.raises((TypeError, ValueError), match="the limit record_bytes"):
            ps.open(path, limits={"record_bytes": limit})  # type: ignore[dict-item]
    for word in ("NEVER", "Auto", ""):
        with pytest.raises(ValueError, match="'never'"):
            ps.open(path, index=word)


def test_truth_values_and_floats_are_no_record_numbers(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord")
    wrong: list[Any] = [[1.0], np.array([1.0]), [True], np.array([True], object), ["1"], [0, None]]
    for records in wrong:
        with pytest.raises(TypeError, match="record numbers"):
            dataset.take(records)
    big: list[Any] = [[1 << 63, -1], [np.int64(1), 1 << 70]]
    for records in big:
        with pytest.raises(ps.RecordIndexError):
            dataset.take(records)
    assert len(dataset.take([])) == 0


@pytest.mark.parametrize("wrap", [bytes, frames.gzip_of, frames.zlib_of])
def test_without_checksums_nothing_is_asked_of_them(
    tmp_path: Path, wrap: Callable[[bytes], bytes]
) -> None:
    """Some writers leave them out."""
    path = tmp_path / "a.tfrecord"
    payloads = [b"record %d" % number for number in range(5000)]
    bare = b"".join(struct.pack("<QI", len(p), 0) + p + bytes(4) for p in payloads)
    path.write_bytes(wrap(bare))
    with pytest.raises(ps.FormatError):
        list(ps.open(path, raw=True, checksums="headers", format="tfrecord"))
    for threads in (1, 2):
        dataset = ps.open(path, raw=True, checksums="none", format="tfrecord")
        rows = [x for batch in dataset.scan(threads=threads) for x in batch[0].to_pylist()]
        assert rows == payloads
        assert dataset.take([4999, 7])[0].to_pylist() == [payloads[4999], payloads[7]]
    assert not list(tmp_path.glob("*.penstock")), "such an index is for nobody else"
    path.write_bytes(wrap(bare[:-7]))
    with pytest.raises(ps.TruncatedError):
        list(ps.open(path, raw=True, checksums="none", format="tfrecord"))
