"""`layout`: exact offsets in golden files, checksums that differ after a byte flip, and the regions of truncated
files."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from docs.fixed_size import FixedSizeFormat
from docs.framed_lines import LinesFormat
from layouts import all_regions, check_regions
from penstock.contract.format import Options
from penstock.storage import MemoryStorage
from penstock.verbs.inspect.layout import complete

SMALL_BYTES = 300_000
NAMES = {
    "tfrecord": [
        "tfrecord/plain.tfrecord",
        "tfrecord/multi_member.tfrecord.gz",
        "tfrecord/zlib.tfrecord.z",
    ],
    "webdataset": [
        "webdataset/typed.tar",
        "webdataset/long_names_pax.tar",
        "webdataset/compressed.tar.gz",
    ],
    "recordio": ["recordio/images.rec", "recordio/plain.rec"],
    "arrayrecord": ["recordio/uncompressed.array_record", "recordio/zstd_group2.array_record"],
    "msgpack": ["neighbours/values.msgpack", "neighbours/arrays.msgpack_numpy"],
    "npy": ["neighbours/f4.npy", "neighbours/struct.npy"],
    "npz": ["neighbours/two.npz", "neighbours/deflated.npz"],
    "parquet": ["neighbours/hf_image.parquet"],
    "mds": ["neighbours/mds/shard.00000.mds", "neighbours/mds_zstd/shard.00000.mds.zstd"],
    "beton": ["beton/scalars.beton"],
    "hdf5": ["neighbours/set.h5"],
}
FORMAT_OF = {name: fmt for fmt, names in NAMES.items() for name in names}


def of_bytes(data: bytes, name: str, **options: Any) -> ps.Layout:
    return ps.layout(name, storage=MemoryStorage({name: data}), **options)


def table(found: ps.Layout) -> list[tuple[int, int, str, Any]]:
    return [(one.start, one.length, one.name, one.value) for one in all_regions(found.regions)]


def named(found: ps.Layout, name: str) -> ps.Region:
    """The first region with this name."""
    return next(one for one in all_regions(found.regions) if one.name == name)


# -- golden files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMAT_OF)
def test_a_golden_file_is_well_and_its_regions_tile_it(name: str, golden: Path) -> None:
    found = ps.layout(golden / name, format=FORMAT_OF[name])
    assert found.ok, found
    check_regions(found)
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


def test_a_record_of_a_tfrecord_has_its_frame_and_checksums(golden: Path) -> None:
    assert table(ps.layout(golden / "tfrecord" / "plain.tfrecord", record=1)) == [
        (0, 16, "record 0", None),
        (16, 21, "record 1", None),
        (16, 8, "length", 5),
        (24, 4, "masked crc32c of length", "0x3e04b2ea"),
        (28, 5, "data", '"hello"'),
        (33, 4, "masked crc32c of data", "0x191c1fbb"),
        (37, 313, "records 2 to 4", None),
    ]


def test_the_regions_of_an_example_are_at_its_features(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"id": [7, 8], "text": ["abc", "de"]}, path, index=False)
    data = path.read_bytes()
    found = ps.layout(path, record=1)
    key, values = named(found, 'feature "text"').children
    assert data[key.start : key.end] == b"\n\x04text"
    assert data[values.start : values.end].endswith(b"\n\x02de")
    assert (values.name, values.value, values.note) == ("bytes_list", '["de"]', "1 value")
    assert named(found, "int64_list").value == "[8]"


def test_members_of_a_gzip_file_come_before_the_frames_in_them(golden: Path) -> None:
    found = ps.layout(golden / "tfrecord" / "multi_member.tfrecord.gz")
    rows = [(one.start, one.length, one.name, one.within) for one in found.regions]
    assert rows == [
        (0, 362, "gzip member 0", ""),
        (362, 45, "gzip member 1", ""),
        (0, 16, "record 0", "inflated"),
        (16, 363, "records 1 to 5", "inflated"),
    ]
    assert named(found, "CRC32") == ps.Region(354, 4, "CRC32", "0x23a2428c", "ok", state="ok")


def test_a_tar_has_headers_with_checksums_and_long_names(golden: Path) -> None:
    found = ps.layout(golden / "webdataset" / "long_names_pax.tar", record=1)
    assert named(found, "pax header").start == 2048 + 512
    checksums = [one for one in all_regions(found.regions) if one.name == "chksum"]
    assert [(one.start, one.state) for one in checksums] == [(2196, "ok"), (3220, "ok")]


def test_a_pack_of_images_has_its_header_and_index(golden: Path) -> None:
    path = golden / "recordio" / "images.rec"
    found = ps.layout(path, record=2)
    start = int((golden / "recordio" / "images.idx").read_text().split("\n")[2].split("\t")[1])
    record = named(found, "record 2")
    assert record.start == start
    assert [one.name for one in record.children[:3]] == ["magic", "cflag, length", "payload"]
    names = [one.name for one in record.children[2].children]
    assert names[:4] == ["flag", "label", "id", "id2"]
    assert named(found, "record 2: key, offset").within == "images.idx"


def test_a_beton_leads_from_row_to_value_and_entry(golden: Path) -> None:
    data = gzip.decompress((golden / "beton" / "all_fields.beton.gz").read_bytes())
    found = of_bytes(data, "a.beton", record=1)
    assert found.ok
    check_regions(found)
    ptr = int(named(found, "ptr").value)
    value = next(one for one in named(found, "pages").children if one.start == ptr)
    entry = named(found, "record 1: image")
    assert [one.value for one in entry.children] == [1, ptr, value.length]


def test_an_array_has_its_header_and_the_values_of_a_record(golden: Path) -> None:
    found = ps.layout(golden / "neighbours" / "f4.npy", record=1)
    assert table(found)[-3:] == [
        (128, 24, "array", None),
        (128, 12, "record 0", None),
        (140, 12, "record 1", "[3. 4. 5.]"),
    ]


def test_an_archive_has_its_members_checksums_and_directory(golden: Path) -> None:
    found = ps.layout(golden / "neighbours" / "deflated.npz")
    assert named(found, "crc-32").state == "ok"
    assert (named(found, "central directory").start, named(found, "array").start) == (135, 128)
    assert named(found, "array").within == "inflated arr_0.npy"


def test_a_shard_of_mds_has_its_offsets_and_columns(golden: Path) -> None:
    found = ps.layout(golden / "neighbours" / "mds" / "shard.00000.mds", record=1)
    assert named(found, "record 1").value == named(found, "size of b").start == 492
    assert (named(found, "s").start, named(found, "s").value) == (589, '"hé"')


def test_a_parquet_file_has_its_pages_and_footer(golden: Path) -> None:
    found = ps.layout(golden / "neighbours" / "hf_image.parquet")
    assert (named(found, "column label").start, named(found, "dictionary page").start) == (208, 208)
    assert named(found, "footer").end == named(found, "footer length").start
    assert named(found, "footer length").value == named(found, "footer").length


def test_an_arrow_file_has_the_buffers_of_the_batch_with_the_record(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    ps.write({"id": np.arange(10)}, path)
    found = ps.layout(path, record=3)
    values = next(one for one in named(found, "body").children if one.length == 80)
    assert np.frombuffer(path.read_bytes(), "<i8", 10, values.start).tolist() == list(range(10))


def test_an_arrayrecord_has_the_chunk_of_the_record(golden: Path) -> None:
    found = ps.layout(golden / "recordio" / "zstd_group2.array_record", record=1)
    assert (named(found, "chunk 0").start, named(found, "chunk 0").length) == (64, 67)
    hashes = [one.state for one in all_regions(found.regions) if one.name == "data hash"]
    assert hashes == [
        "",
        "ok",
        "ok",
        "ok",
    ]  # hashes of the signature, the chunk, the footer and the postscript


def test_an_hdf5_file_has_headers_values_and_chunks(golden: Path) -> None:
    found = ps.layout(golden / "neighbours" / "set.h5", record=1)
    assert named(found, "chunk of x").note == "holds record 1"
    assert named(found, "superblock").length == 96
    assert named(found, "object header of flag").start == 6608


def test_headers_of_new_hdf5_files_have_checksums(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        file["x"] = np.arange(6)
    found = ps.layout(tmp_path / "a.h5")
    states = [one.state for one in all_regions(found.regions) if one.name == "checksum"]
    assert states == ["ok", "ok"]
    check_regions(found)


def test_a_folder_has_its_files_with_the_kind_and_size_of_images(tmp_path: Path) -> None:
    pixels = np.zeros((3, 4, 5, 3), np.uint8)
    ps.write({"image": ps.encode_images(pixels, "png")}, f"{tmp_path}/images/")
    found = ps.layout(tmp_path / "images", record=2)
    images = [one for one in found.regions if one.value]
    assert [one.value for one in images] == ["PNG, 5 × 4"] * 3
    check_regions(found)


def test_a_format_from_elsewhere_has_its_chunks() -> None:
    data = b"FIXD\x04\0\0\0" + bytes(40)
    source = MemoryStorage({"a": data}).source("a")
    head, *others = complete(FixedSizeFormat().layout(source, 0, Options()), source)
    assert (head.name, head.length) == ("not described", 8)
    assert [(one.name, one.end) for one in others] == [("records 0 to 9", 48)]


def test_a_framed_format_from_elsewhere_has_heads_payloads_and_tails(tmp_path: Path) -> None:
    ps.write({"id": [7]}, tmp_path / "a.tfrecord", index=False)
    data = (tmp_path / "a.tfrecord").read_bytes()
    source = MemoryStorage({"a": data}).source("a")
    (record,) = LinesFormat().layout(source, 0, Options(index="never"))
    assert [one.name for one in record.children] == ["head", "payload", "tail"]
    assert record.end == len(data)


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "record", "byte", "region"),
    [
        ("tfrecord/plain.tfrecord", 1, 29, "masked crc32c of data"),
        ("tfrecord/plain.tfrecord", 1, 25, "masked crc32c of length"),
        ("webdataset/typed.tar", 0, 149, "chksum"),
        ("neighbours/two.npz", 0, 185, "crc-32"),
        ("neighbours/deflated.npz", 0, 16, "crc-32"),
        ("recordio/plain.rec", 1, 9, "magic"),
        ("recordio/zstd_group2.array_record", 0, 110, "data hash"),
        ("tfrecord/multi_member.tfrecord.gz", 0, 355, "CRC32"),
        ("tfrecord/zlib.tfrecord.z", 0, 347, "ADLER32"),
    ],
)
def test_a_flipped_byte_makes_a_checksum_differ(
    name: str, record: int, byte: int, region: str, golden: Path
) -> None:
    data = bytearray((golden / name).read_bytes())
    data[byte] ^= 1
    found = of_bytes(bytes(data), Path(name).name, record=record)
    assert not found.ok
    differing = [one for one in all_regions(found.regions) if one.state == "differs"]
    assert region in [one.name for one in differing]
    assert all(one.note.startswith("DIFFERS") for one in differing)


def test_frames_continue_after_a_damaged_head(golden: Path) -> None:
    found = ps.layout(golden / "tfrecord" / "bad_length_crc.tfrecord", record=2)
    assert [one.name for one in found.regions] == [
        "record 0",
        "damage",
        "record 2",
        "records 3 to 4",
    ]
    damage = found.regions[1]
    assert (damage.start, damage.length, damage.state) == (16, 21, "damage")
    assert [one.name for one in damage.children][:2] == ["length", "masked crc32c of length"]


@pytest.mark.parametrize("name", FORMAT_OF)
def test_a_truncated_file_shows_the_remaining_regions_and_the_damage(
    name: str, golden: Path
) -> None:
    data = (golden / name).read_bytes()
    found = of_bytes(data[: len(data) - 3], Path(name).name, format=FORMAT_OF[name])
    check_regions(found)
    assert not found.ok
    assert "damage" in [one.state for one in all_regions(found.regions)]


# The arrays in one file and the datasets in the other do not form a table.
@pytest.mark.parametrize(
    "name", sorted(FORMAT_OF.keys() - {"neighbours/two.npz", "neighbours/set.h5"})
)
def test_a_record_that_is_not_there_is_an_error(name: str, golden: Path) -> None:
    with pytest.raises(ps.RecordIndexError, match="there is no record 5000; the file has"):
        ps.layout(golden / name, record=5000, format=FORMAT_OF[name])


def test_several_files_are_refused(golden: Path) -> None:
    with pytest.raises(ValueError, match="shows one file"):
        ps.layout(golden / "webdataset" / "shard-*.tar")


def test_a_large_file_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.framing.regions.WALK_BYTES", 1000)
    path = tmp_path / "a.tfrecord"
    ps.write({"data": [b"x" * (1 << 20)] * 8}, path, index=False)
    found = ps.layout(path)
    assert found.ok
    check_regions(found)
    assert found.regions[-1].name == "more records"


def test_an_index_leads_to_a_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"id": np.arange(1000)}, path)
    found = ps.layout(path, record=700)
    assert named(found, "int64_list").value == "[700]"
    check_regions(found)


# -- hostile bytes --------------------------------------------------------------------------------


def changed(data: bytes, rng: random.Random) -> bytes:
    """The bytes of a file, truncated or with some of them changed."""
    if rng.random() < 0.3:
        return data[: rng.randrange(len(data) + 1)]
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 3))):
        edge = min(400, len(data))
        place = rng.choice(
            (rng.randrange(len(data)), rng.randrange(edge), -1 - rng.randrange(edge))
        )
        made[place] = rng.choice((0, 255, made[place] ^ 1 << rng.randrange(8)))
    return bytes(made)


@pytest.mark.parametrize("name", [name for name, fmt in FORMAT_OF.items() if fmt != "hdf5"])
def test_changed_bytes_end_in_regions_or_an_error_of_penstock(name: str, golden: Path) -> None:
    data = (golden / name).read_bytes()
    rng = random.Random(name)
    for _ in range(60):
        wrong = changed(data, rng)
        try:
            found = of_bytes(wrong, Path(name).name, record=rng.randrange(3))
        except ps.PenstockError:
            continue
        check_regions(found)


def test_files_of_others_end_in_regions_or_an_error_of_penstock(corpus: Path) -> None:
    # Hostile HDF5 may crash libhdf5; single images have no format.
    skipped = ("hdf5", "jpeg", "png", "webp")
    folders = [one for one in sorted(corpus.iterdir()) if one.is_dir() and one.name not in skipped]
    paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    shown = 0
    for path in paths:
        if path.stat().st_size > SMALL_BYTES:
            continue
        try:
            found = ps.layout(path)
        except ps.PenstockError:
            continue
        check_regions(found)
        shown += 1
    assert shown > 100
