"""Arrow IPC: the corpus, files and streams, options, random access, edges."""

from __future__ import annotations

import gc
import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from arrow_files import ARROW, BOTH, MMAP, stored, ten
from columnar_cases import Broken, numbers, of_every_kind, opened, scan, take, write
from columnar_corpus import CORPUS, cases, check_case, outcomes

import penstock as ps
from penstock.formats.arrow import _batches as arrow_batches


@MMAP
def test_corpus_gives_what_its_manifest_states(mmap: bool) -> None:
    found = cases("arrow")
    assert len(found) > 70
    for case, outcome in zip(found, outcomes("arrow", [c.path for c in found], mmap), strict=True):
        check_case(case, outcome)


def test_corpus_agrees_with_the_golden_json() -> None:
    found = cases("arrow")
    compared = 0
    for case in found:
        stem = case.path.removesuffix(".arrow_file").removesuffix(".stream")
        golden = Path(stem + ".json.gz")
        if stem == case.path or not golden.exists():
            continue
        expected = json.loads(gzip.decompress(golden.read_bytes()))
        table = scan(opened(ARROW, case.path))
        assert table.schema.names == [field["name"] for field in expected["schema"]["fields"]]
        assert table.num_rows == sum(batch["count"] for batch in expected["batches"])
        compared += 1
    assert compared > 40


def test_corpus_is_recognised_by_its_first_bytes() -> None:
    for case in cases("arrow"):
        head = Path(case.path).read_bytes()
        if case.num_records is not None:
            assert ARROW.sniff(head[:4096], len(head)), case
    for other in [*CORPUS.glob("parquet/*/*.parquet"), *CORPUS.glob("tfrecord/*/*")]:
        if other.is_file():
            head = other.read_bytes()
            assert not ARROW.sniff(head[:4096], len(head)), other


@BOTH
@pytest.mark.parametrize("compression", [None, "none", "lz4", "zstd"])
def test_every_kind_survives_a_round_trip(
    tmp_path: Path, compression: str | None, stream: bool
) -> None:
    batch = of_every_kind()
    options = {"compression": compression, "stream": stream}
    path = write(ARROW, tmp_path / "a", [batch], batch.schema, **options)
    found = scan(opened(ARROW, path))
    assert found.schema.equals(batch.schema)
    assert found.equals(pa.Table.from_batches([batch]))
    read = pa.ipc.open_stream(path) if stream else pa.ipc.open_file(path)
    assert read.read_all().equals(pa.Table.from_batches([batch]))


@BOTH
def test_batches_do_not_depend_on_how_the_input_was_cut(tmp_path: Path, stream: bool) -> None:
    batch = pa.concat_batches([of_every_kind().slice(i % 3, 1) for i in range(300)])
    written: set[bytes] = set()
    for step in (1, 7, 100, 300):
        pieces = [batch.slice(i, step) for i in range(0, 300, step)]
        path = write(ARROW, tmp_path / "a", pieces, batch.schema, stream=stream, batch_bytes=5000)
        written.add(Path(path).read_bytes())
    assert len(written) == 1
    assert len(list(opened(ARROW, tmp_path / "a").chunks())) > 3


@BOTH
def test_dictionaries_may_differ_from_batch_to_batch(tmp_path: Path, stream: bool) -> None:
    words = [["a", "b", "a"], ["c", "b", None], ["d", "a", "e"]]
    batches = [pa.record_batch({"w": pa.array(w).dictionary_encode()}) for w in words]
    options = {"stream": stream, "batch_records": 3}
    path = write(ARROW, tmp_path / "a", batches, batches[0].schema, **options)
    reader = opened(ARROW, path)
    last, first = list(reader.chunks())[2], next(iter(reader.chunks()))
    assert reader.decode(last, None, None).column("w").to_pylist() == words[2]
    assert reader.decode(first, None, None).column("w").to_pylist() == words[0]
    assert take(reader, [8, 0, 3, 8]).column("w").to_pylist() == ["e", "a", "c", "e"]


def test_nested_dictionaries_that_differ_need_a_stream(tmp_path: Path) -> None:
    kind = pa.list_(pa.dictionary(pa.int32(), pa.string()))
    batches = [pa.record_batch({"w": pa.array([[w]], kind)}) for w in ("a", "b")]
    with pytest.raises(ps.UnsupportedError, match="stream=True"):
        write(ARROW, tmp_path / "a", batches, batches[0].schema, batch_records=1)
    path = write(ARROW, tmp_path / "b", batches, batches[0].schema, batch_records=1, stream=True)
    assert scan(opened(ARROW, path))["w"].to_pylist() == [["a"], ["b"]]


@pytest.mark.parametrize("deltas", [False, True])
def test_a_batch_uses_the_dictionaries_before_it_in_the_stream(
    tmp_path: Path, deltas: bool
) -> None:
    dictionaries = [["a"], ["a", "b"], ["a", "b", "c"]] if deltas else [["a"], ["x"], ["y", "z"]]
    batches = [
        pa.record_batch({"w": pa.DictionaryArray.from_arrays(pa.array([0, len(d) - 1]), d)})
        for d in map(pa.array, dictionaries)
    ]
    path = stored(tmp_path / "a", batches, True, emit_dictionary_deltas=deltas)
    reader = opened(ARROW, path)
    for chunk, batch in zip(list(reader.chunks())[::-1], batches[::-1], strict=True):
        assert reader.decode(chunk, None, None).to_pydict() == batch.to_pydict()


def test_dictionaries_that_are_not_followed_by_a_batch_are_checked(tmp_path: Path) -> None:
    batch = pa.record_batch({"w": pa.array(["a", "b"]).dictionary_encode()})
    whole = stored(tmp_path / "a", [batch], True).read_bytes()
    place = next(iter(opened(ARROW, tmp_path / "a").chunks())).start_byte
    (tmp_path / "b").write_bytes(whole[:place])
    assert scan(opened(ARROW, tmp_path / "b")).num_rows == 0  # a whole dictionary, and no batch
    damaged = bytearray(whole[:place])
    at = damaged.rindex(b"ab")
    damaged[at] = 0xFF
    (tmp_path / "b").write_bytes(damaged[: at + 1])
    with pytest.raises(ps.FormatError):
        scan(opened(ARROW, tmp_path / "b"))


@BOTH
@MMAP
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_take_equals_scan(
    tmp_path: Path, stream: bool, mmap: bool, compression: str | None
) -> None:
    batches = ten()
    table = pa.Table.from_batches(batches)
    reader = opened(
        ARROW, stored(tmp_path / "a", batches, stream, compression=compression), mmap=mmap
    )
    asked = np.random.default_rng(0).integers(0, 1000, 256)
    assert take(reader, asked).equals(table.take(asked))
    assert scan(reader).equals(table)
    assert take(reader, asked, ["values", "id"]).equals(table.take(asked).select(["values", "id"]))
    assert scan(reader, ["text"]).equals(table.select(["text"]))
    assert take(reader, [5, 5, 4], []).num_rows == 3
    assert scan(reader, []).num_rows == 1000
    assert list(reader.pick(np.array([], np.int64))) == []


def test_take_decodes_each_batch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = opened(ARROW, stored(tmp_path / "a", ten(), False))
    read: list[int] = []
    plain = reader._decoded  # type: ignore[attr-defined]
    monkeypatch.setattr(
        reader, "_decoded", lambda entry, *rest: (read.append(entry.number), plain(entry, *rest))[1]
    )
    take(reader, np.random.default_rng(0).integers(0, 1000, 256))
    assert read == list(range(10))


def test_take_works_for_kinds_that_pyarrow_cannot_take(tmp_path: Path) -> None:
    import pyarrow.compute as pc

    batch = pa.record_batch(
        {
            "runs": pc.run_end_encode(pa.array([1, 1, 2, 3, 3, 3])),
            "views": pa.array(
                ["a", "b", None, "a long text that is not inline", "e", "f"], pa.string_view()
            ),
        }
    )
    reader = opened(ARROW, stored(tmp_path / "a", [batch], False))
    assert take(reader, [5, 0, 3, 3]).to_pydict() == {
        "runs": [3, 1, 3, 3],
        "views": ["f", "a", "a long text that is not inline", "a long text that is not inline"],
    }


@BOTH
def test_mmap_borrows_and_verifies_a_batch_once(tmp_path: Path, stream: bool) -> None:
    batch = pa.record_batch({"a": np.arange(100_000)})
    path = stored(tmp_path / "a", [batch], stream)
    before = pa.total_allocated_bytes()
    reader = opened(ARROW, path, mmap=True)
    (chunk,) = reader.chunks()
    found = reader.decode(chunk, None, None)
    assert found.equals(batch)
    assert pa.total_allocated_bytes() - before < 100_000
    assert reader.decode(chunk, None, None) is found
    reader.close()
    assert found.column("a")[99_999].as_py() == 99_999


@BOTH
def test_counting_reads_headers_only(tmp_path: Path, stream: bool) -> None:
    """The bodies are damaged, but their number is known."""
    path = stored(tmp_path / "a", ten(), stream)
    damaged = bytearray(path.read_bytes())
    for chunk in opened(ARROW, path).chunks():
        damaged[chunk.end_byte - 400 : chunk.end_byte] = b"\xff" * 400
    path.write_bytes(damaged)
    reader = opened(ARROW, path)
    assert reader.num_records == 1000
    assert [c.first_record for c in reader.chunks()] == list(range(0, 1000, 100))


@BOTH
@MMAP
def test_many_threads_decode_one_reader(tmp_path: Path, stream: bool, mmap: bool) -> None:
    batches = [b for i in range(5) for b in ten()]
    reader = opened(ARROW, stored(tmp_path / "a", batches, stream, compression="zstd"), mmap=mmap)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            found = pool.map(lambda c: reader.decode(c, None, None), list(reader.chunks()))
            assert pa.Table.from_batches(found).equals(pa.Table.from_batches(batches))


@BOTH
def test_sources_that_are_not_local_files_are_read_by_position(
    tmp_path: Path, stream: bool
) -> None:
    from penstock.contract.format import Options
    from penstock.storage import MemoryStorage

    path = stored(tmp_path / "a", ten(), stream)
    remote = MemoryStorage({"memory://a": Path(path).read_bytes()}).source("memory://a")

    reader = ARROW.open(remote, Options())
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda c: reader.decode(c, None, None), list(reader.chunks()))
        assert pa.Table.from_batches(found).equals(pa.Table.from_batches(ten()))


def test_columns_of_one_name_are_read_whole_but_not_by_name(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    reader = opened(ARROW, stored(tmp_path / "a", [batch], False))
    assert scan(reader).equals(pa.Table.from_batches([batch]))
    assert take(reader, [0, 0]).num_rows == 2
    with pytest.raises(ps.SchemaError, match="2 columns have this name"):
        scan(reader, ["a"])


def test_batches_without_columns_keep_their_length(tmp_path: Path) -> None:
    batch = pa.record_batch({"a": [1, 2, 3]}).select([])
    path = write(ARROW, tmp_path / "a", [batch, batch], batch.schema)
    reader = opened(ARROW, path)
    assert reader.num_records == 6
    assert scan(reader).num_rows == 6
    assert take(reader, [5, 0]).num_rows == 2


def test_schema_casts_and_says_what_does_not_fit(tmp_path: Path) -> None:
    path = stored(tmp_path / "a", [pa.record_batch({"a": [1, 300], "b": ["x", None]})], True)
    wide = pa.schema([("b", pa.large_string()), ("a", pa.float64())])
    reader = opened(ARROW, path, schema=wide)
    assert scan(reader).schema == wide
    assert scan(reader, ["a"]).to_pydict() == {"a": [1.0, 300.0]}
    with pytest.raises(ps.SchemaError, match="300") as caught:
        scan(opened(ARROW, path, schema=pa.schema([("a", pa.int8())])))
    assert (caught.value.field, caught.value.file) == ("a", str(path))
    with pytest.raises(ps.SchemaError, match="no such column"):
        opened(ARROW, path, schema=pa.schema([("c", pa.int8())]))


def test_a_full_disk_is_an_os_error_and_the_sink_is_left_alone() -> None:
    sink = Broken(room=2000)
    batch = numbers(10_000)
    writer = ARROW.create(sink, batch.schema, ARROW.write_options(batch_records=100), 1)
    with pytest.raises(OSError, match="No space left") as caught:
        for _ in range(3):
            writer.write(batch)
        writer.close()
    assert caught.value.errno == 28
    del writer
    gc.collect()
    assert not sink.finished


def test_unknown_extension_types_are_their_storage(tmp_path: Path) -> None:
    metadata = {b"ARROW:extension:name": b"nobody.knows", b"ARROW:extension:metadata": b"x"}
    field = pa.field("a", pa.int32(), metadata=metadata)
    batch = pa.record_batch([pa.array([1, 2], pa.int32())], schema=pa.schema([field]))
    reader = opened(ARROW, stored(tmp_path / "a", [batch], False))
    assert reader.schema.field("a").type == pa.int32()
    assert reader.schema.field("a").metadata == metadata
    assert scan(reader).equals(pa.Table.from_batches([batch]))


def test_two_columns_of_one_name_are_shown_and_not_converted(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write(batch)
    assert [batch.num_columns for batch in ps.open(path).scan()] == [2]
    assert set(ps.schemas(path).schema.names) == {"a"}
    with pytest.raises(ps.SchemaError, match="field 'a': two columns"):
        ps.convert(path, tmp_path / "a.parquet")
    with pytest.raises(ps.SchemaError, match="field 'a': two columns"):
        ps.diff(path, path)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "in the middle")])
def test_an_arrow_stream_is_not_shorter_after_an_error(
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
