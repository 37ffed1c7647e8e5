"""Folders of MDS shards: the contents of index.json, and which of them are refused."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from fuzz.mds_shards import folder_of, index_of, listed, one_column, shard, simple
from penstock.formats.mds import _inflated as mds_inflated
from penstock.storage import MemoryStorage


def ids(source: Any, **options: Any) -> list[int]:
    return [row["x"] for row in ps.open(source, **options)]


def test_shards_come_in_the_order_of_the_index(tmp_path: Path) -> None:
    folder_of(tmp_path, {"b.mds": [1, 2], "sub/a.mds": [3], "a.mds": [4]})
    (tmp_path / "unlisted.mds").write_bytes(simple([9]))
    with pytest.warns(UserWarning, match=r"left out unlisted\.mds \(not listed in index\.json\)"):
        ds = ps.open(tmp_path)
    assert [row["x"] for row in ds] == [1, 2, 3, 4]
    assert len(ds) == 4
    assert ds.take([3, 0])["x"].to_pylist() == [4, 1]


def test_a_folder_in_memory_is_listed_as_well() -> None:
    data = simple([5])
    files = {"d/s.mds": data, "d/index.json": index_of(listed("s.mds", data, 1))}
    assert ids("d/s.mds", storage=MemoryStorage(files)) == [5]


def test_a_listed_shard_that_is_missing_is_an_error(tmp_path: Path) -> None:
    folder_of(tmp_path, {"a.mds": [1], "b.mds": [2]})
    (tmp_path / "b.mds").unlink()
    with pytest.raises(FileNotFoundError, match=r"b\.mds"):
        ps.open(tmp_path)
    assert ids(tmp_path / "a.mds") == [1]


def test_an_index_without_shards_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_bytes(index_of())
    with pytest.raises(FileNotFoundError, match="lists no shards"):
        ps.open(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["../a.mds", "/etc/passwd", "a/../../b", "", ".", "a/./b", "a\\b", "c:a", "a\0b", "a//b", "a/"],
)
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder_of(tmp_path, {"a.mds": [1]})
    (tmp_path / "index.json").write_bytes(index_of(listed(name, b"", 1)))
    with pytest.raises(ps.FormatError, match="outside its folder"):
        ps.open(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"samples": -1},
        {"samples": "1"},
        {"samples": True},
        {"raw_data": {"basename": 7}},
        {"raw_data": {"basename": "a.mds"}},
        {"raw_data": {"basename": "a.mds", "bytes": 10**30}},
        {"raw_data": {"basename": "a.mds", "bytes": 5, "hashes": [1]}},
        {"raw_data": 5},
        {"zip_data": 5},
    ],
)
def test_an_index_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    data = simple([1])
    (tmp_path / "a.mds").write_bytes(data)
    (tmp_path / "index.json").write_bytes(index_of({**listed("a.mds", data, 1), **change}))
    with pytest.raises(ps.FormatError) as caught:
        ps.open(tmp_path)
    assert str(caught.value.file).endswith("index.json")


def test_other_versions_and_formats_are_unsupported(tmp_path: Path) -> None:
    data = simple([1])
    (tmp_path / "a.mds").write_bytes(data)
    for index in (
        index_of(listed("a.mds", data, 1), version=1),
        index_of({**listed("a.mds", data, 1), "format": "csv"}),
    ):
        (tmp_path / "index.json").write_bytes(index)
        with pytest.raises(ps.UnsupportedError):
            ps.open(tmp_path)


def test_an_index_json_of_another_program_is_not_a_list(tmp_path: Path) -> None:
    for text in ('{"chunks": []}', "[1]", "no json", '{"shards": [1]}', "[" * 100_000):
        (tmp_path / "index.json").write_text(text)
        ps.write({"x": [1]}, tmp_path / "a.tfrecord", overwrite=True)
        with pytest.raises(ps.FormatError):
            len(ps.open(tmp_path))  # index.json itself has no known data format
        assert ids(tmp_path / "a.tfrecord") == [1]


def test_a_shard_of_another_size_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, {"a.mds": [1, 2]})
    data = (tmp_path / "a.mds").read_bytes()
    for other, kind in ((data[:-1], ps.TruncatedError), (data + b"\0", ps.FormatError)):
        (tmp_path / "a.mds").write_bytes(other)
        with pytest.raises(kind, match=r"index\.json"):
            ps.open(tmp_path)


@pytest.mark.parametrize("algorithm", ["sha1", "md5", "sha256", "blake2b", "sha3_256"])
def test_a_hash_that_does_not_match_is_an_error(tmp_path: Path, algorithm: str) -> None:
    folder_of(tmp_path, {"a.mds": [1, 2]}, algorithm)
    assert ids(tmp_path) == [1, 2]
    data = bytearray((tmp_path / "a.mds").read_bytes())
    data[-1] ^= 1
    (tmp_path / "a.mds").write_bytes(data)
    with pytest.raises(ps.ChecksumError, match=algorithm) as caught:
        ids(tmp_path)
    assert str(caught.value.file).endswith("a.mds")
    with pytest.raises(ps.ChecksumError):
        ps.open(tmp_path / "a.mds").take([0])
    assert ids(tmp_path, checksums="headers")[0] == 1


def test_another_number_of_records_is_an_error(tmp_path: Path) -> None:
    data = simple([1, 2])
    (tmp_path / "a.mds").write_bytes(data)
    (tmp_path / "index.json").write_bytes(index_of(listed("a.mds", data, 3)))
    with pytest.raises(ps.FormatError, match="a different number of records"):
        ps.open(tmp_path)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "br": lambda data: pa.Codec("brotli").compress(data, asbytes=True),
    "snappy": lambda data: pa.Codec("snappy").compress(data, asbytes=True),
}


def packed_folder(folder: Path, codec: str, values: list[int]) -> tuple[Path, bytes]:
    data = simple(values)
    packed = PACKERS[codec](data)
    path = folder / f"a.mds.{codec}"
    path.write_bytes(packed)
    sha = {"sha1": hashlib.sha1(packed).hexdigest()}
    entry = {"basename": path.name, "bytes": len(packed), "hashes": sha}
    (folder / "index.json").write_bytes(index_of(listed("a.mds", data, len(values), entry)))
    return path, packed


@pytest.mark.parametrize("codec", list(PACKERS))
def test_compressed_shards_are_read(tmp_path: Path, codec: str) -> None:
    values = list(range(3000))
    path, packed = packed_folder(tmp_path, codec, values)
    assert ids(tmp_path) == ids(path) == values
    assert ps.open(path).take([2999, 0, 17])["x"].to_pylist() == [2999, 0, 17]
    (tmp_path / "index.json").unlink()
    for length in range(0, len(packed), max(1, len(packed) // 60)):
        path.write_bytes(packed[:length])
        with pytest.raises(ps.PenstockError):
            assert ids(path) == values
            raise AssertionError(f"cut to {length} bytes, nothing was missed")


@pytest.mark.parametrize("codec", list(PACKERS))
def test_a_compressed_shard_beyond_the_limit_is_refused(tmp_path: Path, codec: str) -> None:
    path, _ = packed_folder(tmp_path, codec, list(range(3000)))
    with pytest.raises(ps.LimitError, match="member_bytes"):
        ids(path, limits={"member_bytes": 20_000})


def test_flipped_bits_of_a_compressed_shard_end_in_an_error(tmp_path: Path) -> None:
    path, packed = packed_folder(tmp_path, "zstd", list(range(50)))
    for place in range(0, len(packed), 7):
        bad = bytearray(packed)
        bad[place] ^= 16
        path.write_bytes(bad)
        with pytest.raises(ps.PenstockError):
            ids(tmp_path)


def test_the_plain_shard_is_read_if_both_exist(tmp_path: Path) -> None:
    packed_folder(tmp_path, "gz", [1, 2])
    (tmp_path / "a.mds").write_bytes(simple([1, 2]))
    assert ps.open(tmp_path).paths[0].endswith("a.mds")
    assert ids(tmp_path) == [1, 2]


def test_more_compressed_shards_than_stay_in_memory(tmp_path: Path) -> None:
    for number in range(8):
        data = PACKERS["zstd"](simple(list(range(number * 10, number * 10 + 10))))
        (tmp_path / f"shard.{number:05}.mds.zstd").write_bytes(data)
    dataset = ps.open(tmp_path)
    assert [row["x"] for row in dataset] == list(range(80))
    order = [79, 0, 33, 78, 1]
    assert dataset.take(order)["x"].to_pylist() == order


def test_the_listing_is_json_as_the_peer_writes_it(golden: Path) -> None:
    index = json.loads((golden / "neighbours" / "mds_zstd" / "index.json").read_text())
    assert [shard["zip_data"]["basename"] for shard in index["shards"]] == [
        path.rsplit("/", 1)[-1] for path in ps.open(golden / "neighbours" / "mds_zstd").paths
    ]


def test_a_column_whose_name_is_not_text_is_refused() -> None:
    data = shard({"\ud800": ("str", None)}, [{"\ud800": b"a"}])
    with pytest.raises(ps.FormatError, match="not text"):
        ids("a.mds", storage=MemoryStorage({"a.mds": data}))


def test_a_config_of_very_many_values_is_refused() -> None:
    many = {"x": [[]] * (5 << 20)}
    data = shard({"x": ("str", None)}, [{"x": b"a"}], many=many)
    with pytest.raises(ps.LimitError, match="values"):
        ids("a.mds", storage=MemoryStorage({"a.mds": data}))


def test_inflated_shards_that_are_kept_take_no_more_than_one_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mds_inflated, "_cache", {})
    monkeypatch.setattr(mds_inflated, "CACHED_BYTES", 25_000)
    paths = [tmp_path / f"{n}.mds.gz" for n in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(gzip.compress(one_column("bytes", [bytes(10_000), b"%d" % number])))
    rows = [row["x"] for row in ps.open([str(path) for path in paths], index="never")]
    assert rows[1::2] == [b"0", b"1", b"2", b"3"]
    assert len(mds_inflated._cache) == 2
    monkeypatch.setattr(mds_inflated, "CACHED_BYTES", 0)
    assert len(list(ps.open(str(paths[0]), index="never"))) == 2
    assert len(mds_inflated._cache) == 1
