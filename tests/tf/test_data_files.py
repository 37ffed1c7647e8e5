"""Records, lines and names of files, intact and damaged, compared with TensorFlow."""

from __future__ import annotations

import gzip
import itertools
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
import tensorflow as real  # noqa: ICN001 -- tf is whichever of the two

import penstock.tf as ours
from penstock.tf.data.flushed import is_flushed
from penstock.tf.patterns import matching


def written(path: Path, records: list[bytes], compression: str = "") -> Path:
    with real.io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)
    return path


def outcome(tf: Any, build: Any) -> tuple[list[Any], str | None]:
    """The elements that were read, and the class of the error after them."""
    seen: list[Any] = []
    try:
        seen.extend(element.numpy() for element in build(tf))
    except tf.errors.OpError as error:
        return seen, type(error).__name__
    return seen, None


def same(build: Any) -> tuple[list[Any], str | None]:
    found, expected = outcome(ours, build), outcome(real, build)
    assert found == expected
    return found


RECORDS = [b"record %d" % n * (n % 7) for n in range(300)]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("size", [1, 3000])
def test_records_come_as_they_were_written(tmp_path: Path, compression: str, size: int) -> None:
    records = [record * size for record in RECORDS]
    path = str(written(tmp_path / "a", records, compression))
    found, error = outcome(ours, lambda tf: tf.data.TFRecordDataset(path, compression))
    assert found == records
    assert error is None


def test_names_may_be_text_lists_tensors_paths_and_datasets(tmp_path: Path) -> None:
    one, two = (str(written(tmp_path / name, RECORDS[:5])) for name in "ab")
    for names in (
        lambda tf: one,
        lambda tf: [one, two],
        lambda tf: tf.constant([two, one]),
        lambda tf: tf.data.Dataset.from_tensor_slices([one, two, one]),
        lambda tf: [],
    ):
        same(lambda tf, names=names: tf.data.TFRecordDataset(names(tf)))
    assert len(outcome(ours, lambda tf: tf.data.TFRecordDataset(Path(one)))[0]) == 5


def test_buffer_sizes_and_parallel_reads_change_what_tensorflow_says(tmp_path: Path) -> None:
    paths = [str(written(tmp_path / f"{n}", RECORDS[: 3 * n])) for n in range(5)]
    for buffer_size in (None, 0, 1, 1 << 20):
        same(lambda tf, size=buffer_size: tf.data.TFRecordDataset(paths, buffer_size=size))
    for reads in (1, 2, 5, 9):
        same(lambda tf, n=reads: tf.data.TFRecordDataset(paths, num_parallel_reads=n))


def test_a_missing_file_is_named_after_the_records_before_it(tmp_path: Path) -> None:
    paths = [str(written(tmp_path / "a", RECORDS[:3])), str(tmp_path / "none")]
    found, error = same(lambda tf: tf.data.TFRecordDataset(paths))
    assert (len(found), error) == (3, "NotFoundError")
    with pytest.raises(FileNotFoundError, match="none"):
        list(ours.data.TFRecordDataset(paths))


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ours.errors.OpError):
        list(ours.data.TFRecordDataset(str(tmp_path)))


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert same(lambda tf: tf.data.TFRecordDataset(str(tmp_path / "a"))) == ([], None)


@pytest.mark.parametrize("given", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("actual", ["", "GZIP", "ZLIB"])
def test_another_compression_is_data_loss(tmp_path: Path, given: str, actual: str) -> None:
    path = str(written(tmp_path / "a", RECORDS[:9], actual))
    found, error = same(lambda tf: tf.data.TFRecordDataset(path, given))
    assert (len(found), error) == ((9, None) if given == actual else (0, "DataLossError"))


@pytest.mark.parametrize(("actual", "given"), list(itertools.permutations(["", "GZIP", "ZLIB"], 2)))
def test_another_compression_is_named_with_the_argument_that_reads_it(
    tmp_path: Path, actual: str, given: str
) -> None:
    path = str(written(tmp_path / "a", RECORDS[:9], actual))
    with pytest.raises(ours.errors.DataLossError) as caught:
        list(ours.data.TFRecordDataset(path, given))
    assert f"the file begins as {actual.lower() or 'a plain TFRecord'}, but" in str(caught.value)
    right = f'compression_type="{actual}"' if actual else "leave out compression_type"
    assert (caught.value.file, caught.value.hint) == (path, right)


def test_a_damaged_file_whose_compression_is_given_rightly_is_only_damaged(tmp_path: Path) -> None:
    for kind in ("", "GZIP", "ZLIB"):
        path = written(tmp_path / "a", RECORDS, kind)
        damaged = bytearray(path.read_bytes())
        damaged[-20] ^= 1
        path.write_bytes(bytes(damaged))
        with pytest.raises(ours.errors.DataLossError) as caught:
            list(ours.data.TFRecordDataset(str(path), kind))
        assert "begins as" not in str(caught.value)


def test_damage_is_data_loss_after_the_records_before_it(tmp_path: Path) -> None:
    path = written(tmp_path / "a", RECORDS)
    whole = path.read_bytes()
    for place in (*range(0, 60, 7), len(whole) // 2, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(bytes(damaged))
        assert same(lambda tf: tf.data.TFRecordDataset(str(path)))[1] == "DataLossError"
    errors = set()
    for end in (*range(60), len(whole) // 3, len(whole) - 1):
        path.write_bytes(whole[:end])
        errors.add(same(lambda tf: tf.data.TFRecordDataset(str(path)))[1])
    assert errors == {None, "DataLossError"}


def test_after_damage_reading_continues_with_the_next_file(tmp_path: Path) -> None:
    paths = [written(tmp_path / name, RECORDS[:20]) for name in "abc"]
    damaged = bytearray(paths[1].read_bytes())
    damaged[len(damaged) // 2] ^= 1
    paths[1].write_bytes(bytes(damaged))
    names = [str(path) for path in paths]
    found, error = same(lambda tf: tf.data.TFRecordDataset(names).ignore_errors())
    assert 40 < len(found) < 60
    assert error is None
    mapped = ours.data.TFRecordDataset(names).map(lambda x: x, num_parallel_calls=2).prefetch(2)
    assert [x.numpy() for x in mapped.ignore_errors()] == found


def test_an_error_says_which_file_and_record(tmp_path: Path) -> None:
    path = written(tmp_path / "a", RECORDS)
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(ours.errors.DataLossError) as caught:
        list(ours.data.TFRecordDataset(str(path)))
    assert caught.value.file == str(path)
    assert caught.value.record == len(RECORDS) - 1


def test_reading_leaves_nothing_next_to_the_files(tmp_path: Path) -> None:
    path = written(tmp_path / "a", RECORDS)
    list(ours.data.TFRecordDataset(str(path)).shuffle(10).batch(3))
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_that_is_read_twice_is_opened_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a", RECORDS[:2])
    dataset = ours.data.TFRecordDataset(str(path))
    assert len(list(dataset)) == 2
    written(path, RECORDS[:5])
    assert len(list(dataset)) == 5


def test_lines_come_without_their_ends(tmp_path: Path) -> None:
    texts = [b"", b"a\nb\r\n\nc", b"x\n", b"\r\r\n", b"only\rone", b"line\n" * 9000]
    for number, text in enumerate(texts):
        plain, packed, stream = (tmp_path / f"{kind}{number}" for kind in "pgz")
        plain.write_bytes(text)
        packed.write_bytes(gzip.compress(text))
        stream.write_bytes(zlib.compress(text))
        same(lambda tf, path=plain: tf.data.TextLineDataset(str(path)))
        same(lambda tf, path=packed: tf.data.TextLineDataset([str(path)], "GZIP"))
        same(lambda tf, path=stream: tf.data.TextLineDataset(str(path), compression_type="ZLIB"))


def test_records_of_one_size_are_between_header_and_footer(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"headabcdefghifoot")
    for size, header, footer in ((3, 4, 4), (9, 4, 4), (1, 0, 0), (2, 4, 4), (3, 20, 0)):
        same(
            lambda tf, sizes=(size, header, footer): tf.data.FixedLengthRecordDataset(
                str(path), *sizes
            )
        )
    (tmp_path / "g").write_bytes(gzip.compress(path.read_bytes()))
    same(
        lambda tf: tf.data.FixedLengthRecordDataset(
            str(tmp_path / "g"), 3, 4, 4, compression_type="GZIP"
        )
    )


def test_names_match_as_tensorflow_matches_them(tmp_path: Path) -> None:
    names = ["a1", "a2", "a10", "A1", "b", ".hidden", "[x]", "a*b", "x-y", "c{d,e}"]
    for folder in ("", "one", "two", ".dot"):
        (tmp_path / folder).mkdir(exist_ok=True)
        for name in names:
            (tmp_path / folder / name).touch()
    patterns = "* a? a* [ab]* [!a]* [^a]* a[0-9]* */a1 *//b one/* ** **/a1 .h* \\[x\\] a\\*b [x-y]-y c{d,e} ? *.dot/b none*"
    for pattern in patterns.split():

        def listed(tf: Any, pattern: str = pattern) -> Any:
            return tf.data.Dataset.list_files(str(tmp_path / pattern), shuffle=False)

        files, _ = outcome(ours, listed) if _lists(ours, listed) else ([], "none")
        expected, _ = outcome(real, listed) if _lists(real, listed) else ([], "none")
        files = [f for f in files if os.path.isfile(f)]
        expected = [f for f in expected if os.path.isfile(f)]
        assert files == expected, pattern
    assert matching(str(tmp_path / "a1")) == [str(tmp_path / "a1")]


def _lists(tf: Any, listed: Any) -> bool:
    try:
        listed(tf)
    except tf.errors.InvalidArgumentError:
        return False
    return True


def test_listed_files_come_in_tensorflows_order(tmp_path: Path) -> None:
    for name in "abcdefg":
        (tmp_path / name).touch()
    for patterns in ("*", ["a", "[a-c]", "none*"]):
        full = [str(tmp_path / p) for p in ([patterns] if isinstance(patterns, str) else patterns)]
        for seed in (1, 7):
            orders = []
            for tf in (real, ours):
                dataset = tf.data.Dataset.list_files(full, seed=seed)
                orders.append([[name.numpy() for name in dataset] for _ in range(3)])
            assert orders[0] == orders[1]


@pytest.mark.parametrize(("container", "pack"), [("GZIP", gzip.compress), ("ZLIB", zlib.compress)])
def test_no_flipped_bit_of_a_compressed_file_ends_it_silently(
    container: str, pack: Any, tmp_path: Path
) -> None:
    path = tmp_path / "flipped"
    with ours.io.TFRecordWriter(str(path)) as writer:
        for i in range(20):
            writer.write(b"r%d" % i * (i + 1))
    whole = pack(path.read_bytes())
    records = [x.numpy() for x in ours.data.TFRecordDataset(str(path))]
    for place in range(0, len(whole), 3):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        found: list[bytes] = []
        try:
            found.extend(x.numpy() for x in ours.data.TFRecordDataset(str(path), container))
        except ours.errors.DataLossError:
            assert found == records[: len(found)]
        else:
            assert found == records


@pytest.mark.parametrize("container", ["GZIP", "ZLIB", ""])
@pytest.mark.parametrize("count", [0, 1, 5, 300])
def test_a_writer_that_is_flushed_and_still_open_can_be_read_up_to_there(
    container: str, count: int, tmp_path: Path
) -> None:
    path = str(tmp_path / "open")
    records = [os.urandom(i) for i in range(count)]
    for tf in (real, ours):
        writer = tf.io.TFRecordWriter(path, container or None)
        for record in records:
            writer.write(record)
        writer.flush()
        for reader in (real, ours):
            found = [x.numpy() for x in reader.data.TFRecordDataset(path, container)]
            assert found == records, (tf.__name__, reader.__name__)
        iterator = ours.compat.v1.io.tf_record_iterator
        assert list(iterator(path, ours.io.TFRecordOptions(container))) == records
        writer.close()


@pytest.mark.parametrize("window_bits", [15, 31])
def test_a_cut_in_the_middle_of_a_block_is_not_a_flush(window_bits: int, tmp_path: Path) -> None:
    path, container = tmp_path / "cut", {15: "zlib", 31: "gzip"}[window_bits]
    flushes = (zlib.Z_SYNC_FLUSH, zlib.Z_PARTIAL_FLUSH, zlib.Z_FULL_FLUSH)
    for flush in flushes:
        packer = zlib.compressobj(6, zlib.DEFLATED, window_bits)
        front = packer.compress(b"abc" * 1000 + os.urandom(500)) + packer.flush(flush)
        path.write_bytes(front)
        assert is_flushed(str(path), container)
        whole = front + packer.compress(b"xyz" * 5000 + os.urandom(500)) + packer.flush()
        for end in range(len(front) + 9, len(whole) - 9, 7):
            path.write_bytes(whole[:end])
            assert not is_flushed(str(path), container), end
