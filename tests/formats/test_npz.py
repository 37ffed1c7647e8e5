"""Reading npz: which arrays make a table, members of every kind, columns that are stored as several arrays."""

from __future__ import annotations

import io
import json
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from npz_files import lists_file, member, npz, opened, table

import penstock as ps
from penstock.columns.types import DTYPE_KEY
from penstock.formats.npz import format as npz_format
from penstock.storage import MemoryStorage
from reading import SHARED, run_python

GOLDEN = SHARED / "specs" / "golden" / "neighbours"
CORPUS = SHARED / "corpus" / "npy"


def test_golden_files_read_as_their_json_says() -> None:
    told = json.loads((GOLDEN / "deflated.npz.expected.json").read_text())
    found = pa.table(ps.open(str(GOLDEN / "deflated.npz"), index="never"))
    assert found.to_pydict() == {"arr_0": told["arr_0"]}
    told = json.loads((GOLDEN / "two.npz.expected.json").read_text())
    with pytest.raises(ps.SchemaError, match="differ in length") as caught:
        ps.open(str(GOLDEN / "two.npz"), index="never")
    assert "3: x" in str(caught.value)
    for name in ("x", "grp/y"):
        dataset = ps.open(str(GOLDEN / "two.npz"), index="never", arrays=[name])
        column = pa.table(dataset).column(name)
        assert [list(v) if name != "x" else v for v in column.to_pylist()] == told[name]


def test_the_corpus_reads_as_numpy_reads_it_or_says_why_not() -> None:
    paths = sorted(CORPUS.rglob("*.npz"))
    assert len(paths) >= 9, f"the corpus is not at {CORPUS}"
    seen = 0
    for path in paths:
        oracle = np.load(path, allow_pickle=False)
        for name in oracle.files:
            try:
                wanted = oracle[name]
            except ValueError:
                with pytest.raises(ps.UnsupportedError, match="pickle"):
                    ps.open(str(path), index="never", arrays=[name])
                continue
            if not wanted.shape or wanted.dtype.itemsize == 16:
                continue
            dataset = ps.open(str(path), index="never", arrays=[name])
            found = dataset.take(list(range(len(dataset)))).column(0) if len(dataset) else []
            got = found.to_numpy_ndarray() if hasattr(found, "to_numpy_ndarray") else found
            assert np.array_equal(np.asarray(got), wanted), (path, name)
            seen += 1
    assert seen > 20


def test_long_doubles_come_as_their_bits() -> None:
    path = CORPUS / "scipy-tests" / "fftw_longdouble_ref.npz"
    dataset = ps.open(str(path), index="never", arrays=["dct_1_2"])
    field = dataset.schema.field("dct_1_2")
    assert (field.type, field.metadata[DTYPE_KEY]) == (pa.binary(16), b"float128")


@pytest.mark.parametrize("compressed", [False, True])
def test_equal_arrays_are_a_table_and_single_values_its_metadata(compressed: bool) -> None:
    images = np.random.default_rng(1).integers(0, 256, (3000, 8, 8), np.uint8)
    labels = np.arange(3000)
    data = npz(compressed, images=images, labels=labels, version=np.array(7), name="mnist")
    dataset = opened(data)
    assert dataset.schema.names == ["images", "labels"]
    assert dataset.schema.metadata == {b"version": b"7", b"name": b"mnist"}
    found = table(data)
    assert found.column("labels").to_pylist() == labels.tolist()
    assert found.column("images").combine_chunks().to_numpy_ndarray().tolist() == images.tolist()
    numbers = np.random.default_rng(2).integers(0, 3000, 99)
    batch = dataset.take(numbers)
    assert batch["images"].to_numpy_ndarray().tolist() == images[numbers].tolist()


def test_only_the_records_of_a_stored_member_are_read() -> None:
    data = npz(x=np.zeros((10_000, 100)), y=np.arange(10_000))
    storage = MemoryStorage({"a.npz": data})
    read = 0
    original = storage.source

    def counting(path: str, *, mmap: bool = False) -> Any:
        source = original(path, mmap=mmap)
        gather, plain = source.gather, source.read

        def count_gather(starts: Any, lengths: Any) -> Any:
            nonlocal read
            read += sum(pa.array(lengths).to_pylist())
            return gather(starts, lengths)

        def count_read(start: int, length: int) -> Any:
            nonlocal read
            read += min(length, len(data) - start)
            return plain(start, length)

        source.gather, source.read = count_gather, count_read
        return source

    storage.source = counting  # type: ignore[method-assign]
    dataset = ps.open("a.npz", storage=storage, index="never", checksums="headers")
    assert dataset.take([9, 5000])["y"].to_pylist() == [9, 5000]
    assert read < 200_000


def test_arrays_choose_what_makes_the_table() -> None:
    data = npz(a=np.arange(3), b=np.arange(4), c=np.arange(3))
    assert table(data, arrays=["c", "a"]).schema.names == ["c", "a"]
    with pytest.raises(ps.SchemaError, match="no such array"):
        opened(data, arrays=["d"])
    with pytest.raises(TypeError, match="list of names"):
        opened(data, arrays="a")
    with pytest.raises(TypeError, match="arrays"):
        opened(data, array=["a"])


def test_objects_are_refused_but_other_arrays_are_not() -> None:
    out = io.BytesIO()
    np.savez(out, a=np.arange(2), o=np.array([{}, []], object))
    with pytest.raises(ps.UnsupportedError, match=r"field 'o'.*pickle"):
        opened(out.getvalue())
    assert table(out.getvalue(), arrays=["a"]).to_pydict() == {"a": [0, 1]}


def test_members_that_are_not_arrays_are_skipped_and_names_touch_no_files(
    tmp_path: Path,
) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("../../escape.npy", member())
        archive.writestr("/etc/x.npy", member())
        archive.writestr("readme.txt", b"hello")
    path = tmp_path / "deep" / "er"
    path.mkdir(parents=True)
    (path / "a.npz").write_bytes(out.getvalue())
    found = pa.table(ps.open(str(path / "a.npz"), index="never"))
    assert found.schema.names == ["../../escape", "/etc/x"]
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.npz", "deep", "er"]


def test_zip64_archives_are_read() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("x.npy", "w", force_zip64=True) as file:
        file.write(member())
    assert table(out.getvalue()).to_pydict() == {"x": [0, 1, 2, 3, 4]}
    # The directory's numbers in 64 bits, as in an archive beyond 4 GiB.
    data = bytearray(npz(x=np.arange(3)))
    end = data.rindex(b"PK\5\6")
    count, _, size, start = struct.unpack_from("<HHII", data, end + 8)
    wide = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, start)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, end, 1)
    last = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    assert table(bytes(data[:end]) + wide + locator + last).to_pydict() == {"x": [0, 1, 2]}


def test_inflated_members_go_to_a_file_if_they_are_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(npz_format, "MEMORY_BYTES", 1000)
    array = np.random.default_rng(1).standard_normal((5000, 3))
    found = table(npz(True, x=array, y=np.arange(5000)))
    assert found.column("x").combine_chunks().to_numpy_ndarray().tolist() == array.tolist()


ANONYMOUS = """
import re, sys
import penstock as ps

def held():
    return int(re.search(r"RssAnon:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 1024

dataset = ps.open(sys.argv[1], index="never")
before, most, records = held(), 0, 0
for batch in dataset.scan(threads=1):
    most, records = max(most, held()), records + batch.num_rows
print(records, int(most - before))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_deflated_member_is_kept_in_a_file_not_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.npz"
    np.savez_compressed(path, x=np.zeros((800, 1 << 14), np.float64))  # 100 MiB
    records, megabytes = run_python(ANONYMOUS, str(path)).split()
    assert records == "800"
    assert int(megabytes) < 60


# -- columns of several arrays --------------------------------------------------------------------

WANTED = {
    "tokens": [[0, 1], [], [2, 3, 4]],
    "name": ["a", "é", ""],
    "label": ["dog", "cat", "dog"],
    "score": [0.5, None, 1.5],
}


def test_arrays_that_belong_together_are_one_column() -> None:
    assert table(lists_file()).to_pydict() == WANTED
    taken = opened(lists_file()).take([2, 0, 2])
    assert taken.to_pydict() == {name: [v[2], v[0], v[2]] for name, v in WANTED.items()}


def test_names_that_only_resemble_parts_stay_arrays() -> None:
    found = table(
        npz(**{"a#offsets": np.arange(3), "b#x": np.arange(3), "c#valid": np.ones(3, bool)})
    )
    assert found.schema.names == ["a#offsets", "b#x", "c#valid"]


@pytest.mark.parametrize("offsets", [[0, 3, 2, 5], [0, 2, 4, 6], [-1, 2, 3, 5], [0, 1 << 62, 2, 3]])
def test_offsets_that_fall_or_point_beyond_are_refused(offsets: list[int]) -> None:
    data = npz(**{"t#offsets": np.array(offsets), "t#values": np.arange(5)})
    with pytest.raises(ps.FormatError, match="field 't'"):
        table(data)


def test_a_label_without_a_name_is_refused() -> None:
    data = npz(**{"l#codes": np.array([0, 5]), "l#names": np.array(["a", "b"])})
    with pytest.raises(ps.FormatError, match="record 1, field 'l'"):
        table(data)


def test_text_that_is_not_utf8_is_refused() -> None:
    data = npz(**{"t#offsets": np.array([0, 1]), "t#utf8": np.array([0xFF], np.uint8)})
    with pytest.raises(ps.FormatError, match="UTF-8"):
        table(data)


def test_an_archive_after_other_bytes_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    whole = [npz(x=np.arange(4)), npz(x=np.arange(4) + 100)]
    path.write_bytes(whole[0] + whole[1])
    with np.load(path) as loaded:
        wanted = loaded["x"].tolist()
    assert wanted == [100, 101, 102, 103]
    found = ps.open(path, index="never")
    assert [row["x"] for row in found.take(range(4)).to_pylist()] == wanted


def test_arrays_without_a_dimension_are_scalars(tmp_path: Path) -> None:
    ps.write([{"a": np.array(3)}, {"a": np.array(4)}] * 2000, tmp_path / "a.parquet")
    dataset = ps.open(tmp_path / "a.parquet")
    assert dataset.schema.field("a").type == pa.int64()
    assert dataset[3999] == {"a": 4}
