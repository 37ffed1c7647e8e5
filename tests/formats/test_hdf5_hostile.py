"""HDF5 files that are refused: they lead to other files, claim too much, have no Arrow type or are damaged."""

from __future__ import annotations

import io
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from hdf5_files import CORPUS, made, opened, table

import penstock as ps
from reading import run_python


def canaries(folder: Path) -> dict[str, str]:
    """Files that refer to other files. Each of these is a pipe without a writer, so a process that opens one waits
    for ever."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    found: dict[str, str] = {}
    for kind in ("external link", "external storage", "virtual", "virtual, unlimited"):
        path = str(folder / f"{kind}.h5")
        found[kind] = path
        with h5py.File(path, "w") as file:
            if kind == "external link":
                file["x"] = h5py.ExternalLink(str(pipe), "/x")
            elif kind == "external storage":
                file.create_dataset("x", (4,), "i4", external=[(str(pipe), 0, 16)])
            elif kind == "virtual":
                layout = h5py.VirtualLayout((4,), "i4")
                layout[:] = h5py.VirtualSource(str(pipe), "x", (4,))
                file.create_virtual_dataset("x", layout)
            else:
                layout = h5py.VirtualLayout((4,), "i4", maxshape=(None,))
                source = h5py.VirtualSource(str(pipe), "x", (4,), maxshape=(None,))
                layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
                file.create_virtual_dataset("x", layout)
    return found


READ = """
import sys
import penstock as ps
for path in sys.argv[1:]:
    try:
        dataset = ps.open(path, index="never")
        print("rows", sum(batch.num_rows for batch in dataset.scan()))
    except ps.UnsupportedError as error:
        print("refused", error.message)
"""


def test_nothing_in_a_file_opens_another_file(tmp_path: Path) -> None:
    files = canaries(tmp_path)
    lines = run_python(READ, *files.values(), seconds=60).splitlines()
    assert len(lines) == 4
    assert all(line.startswith("refused") for line in lines), lines
    assert ["link" in lines[0], "external files" in lines[1]] == [True, True]
    assert all("virtual" in line for line in lines[2:])


def test_soft_links_are_skipped_even_if_they_leave_the_file(tmp_path: Path) -> None:
    path = made(tmp_path, x=np.arange(3))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with h5py.File(path, "a") as file:
        file["same"] = h5py.SoftLink("/x")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["out"] = h5py.ExternalLink(str(pipe), "/")
        file["leaves"] = h5py.SoftLink("/out/x")
    assert opened(path, datasets=["x", "same", "leaves", "dangling"][:1]).schema.names == ["x"]
    with pytest.raises(ps.UnsupportedError, match="external link"):
        opened(path)


def test_no_plug_in_is_loaded(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libh5lz4.so")  # loading it would wait for ever
    files = [
        str(CORPUS / "jhdf" / "lz4_datasets.hdf5"),
        str(CORPUS / "pytables-tests" / "Tables_lzo1.h5"),
    ]
    code = f"import os; os.environ['HDF5_PLUGIN_PATH'] = {str(tmp_path)!r}\n" + READ
    lines = run_python(code, *files).splitlines()
    assert len(lines) == 2
    assert all("plug-in" in line for line in lines), lines


def test_values_that_were_never_written_are_bounded(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("x", (1 << 40,), "i8", chunks=(1024,))
    with pytest.raises(ps.LimitError, match="member_bytes"):
        opened(path)


def test_a_dataset_of_too_large_records_is_refused_when_it_is_read(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
        file["y"] = np.arange(3.0)
        file.create_dataset("huge", (3, 1 << 17), "i8", chunks=(1, 1 << 12))
    limits = {"record_bytes": 1 << 19}
    others = opened(path, limits=limits, columns=["x", "y"])
    assert others.take([2, 0]).to_pylist() == [{"x": 2, "y": 2.0}, {"x": 0, "y": 0.0}]
    assert table(path, limits=limits, datasets=["y"])["y"].to_pylist() == [0, 1, 2]
    dataset = opened(path, limits=limits)
    assert len(dataset) == 3
    for read in (lambda: list(dataset.scan()), lambda: dataset.take([1])):
        with pytest.raises(ps.LimitError, match="record_bytes") as caught:
            read()
        assert caught.value.field == "huge"
    assert table(path)["huge"].type.shape == [1 << 17]


def test_a_structure_with_text_of_any_length_is_refused(tmp_path: Path) -> None:
    kind = np.dtype([("a", "i4"), ("t", h5py.string_dtype())])
    path = made(tmp_path, x=np.array([(1, "a")], kind))
    with pytest.raises(ps.UnsupportedError, match="a structure holds text or lists"):
        opened(path)


@pytest.mark.parametrize("what", ["references", "lists of structures", "raw"])
def test_values_without_an_arrow_type_are_refused(what: str, tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(2)
        if what == "references":
            file.create_dataset("r", (2,), h5py.ref_dtype)
        elif what == "lists of structures":
            file.create_dataset("r", (2,), h5py.vlen_dtype(np.dtype([("a", "i4")])))
    with pytest.raises(ps.UnsupportedError):
        opened(path, raw=what == "raw")


def small_file() -> bytes:
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file.create_dataset("x", data=np.arange(12), chunks=(5,), compression="gzip", shuffle=True)
        file.create_dataset("y", data=np.arange(12.0))
        file.create_dataset("t", data=[f"n{n}" for n in range(12)])
        file["x"].attrs["unit"] = "m"
    return out.getvalue()


FLIPS = """
import faulthandler, random, sys
from pathlib import Path
import penstock as ps
data, seed = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
rng = random.Random(seed)

def read(name, broken):
    # Each under a name of its own: of one that is still open libhdf5 would show what it knows.
    path = f"{sys.argv[1]}.{name}"
    Path(path).write_bytes(broken)
    faulthandler.dump_traceback_later(10, exit=True)
    try:
        dataset = ps.open(path, index="never", format="hdf5")
        for batch in dataset.scan(threads=1):
            batch.validate(full=True)
    except ps.PenstockError as error:
        assert error.file == path
    faulthandler.cancel_dump_traceback_later()
    Path(path).unlink()

for size in (512, 4096):
    for start in range(0, len(data), size):
        read("zeroed", data[:start] + bytes(len(data[start : start + size])) + data[start + size :])
for n in range(200):
    broken = bytearray(data)
    if n % 4 == 0:
        start, size = rng.randrange(len(data)), rng.choice((16, 64, 512, 4096))
        broken[start : start + size] = rng.randbytes(len(broken[start : start + size]))
    for _ in range(rng.choice((1, 1, 2, 5))):
        broken[rng.randrange(len(data))] = rng.choice((0, 255, rng.randrange(256)))
    read(f"flipped{n}", broken)
print("done")
"""


@pytest.mark.parametrize("layout", ["chunks", "text", "groups", "attributes"])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_broken_files_end_in_data_or_an_error(layout: str, libver: str, tmp_path: Path) -> None:
    """Files are read in separate processes, because penstock cannot know what libhdf5 does with them."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        if layout == "chunks":
            file.create_dataset(
                "x", data=np.arange(90), chunks=(5,), compression="gzip", shuffle=True
            )
            file.create_dataset("y", data=np.arange(90.0))
            file.create_dataset("z", data=np.arange(90), chunks=(9,), fletcher32=True)
        elif layout == "text":
            file.create_dataset("t", data=[f"text {n}" * 3 for n in range(200)])
            file["t"].attrs["unit"] = ["m", "s"]
        elif layout == "groups":
            for n in range(12):
                file[f"g{n}/x"] = np.arange(3)
        else:
            file["x"] = np.arange(3)
            for n in range(40):
                file["x"].attrs[f"a{n}"] = f"text {n}" if n % 2 else n
    assert "done" in run_python(FLIPS, str(path), "1", megabytes=1500, seconds=120)


def test_a_zeroed_heap_of_text_is_an_error_and_not_walked_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    ps.write({"id": range(60), "s": [f"text {n}" * 5 for n in range(60)]}, path)
    data = path.read_bytes()
    heap = data.index(b"GCOL")
    path.write_bytes(data[: heap + 64] + bytes(1024) + data[heap + 64 + 1024 :])
    code = f"""
import penstock as ps
try:
    list(ps.open({str(path)!r}, index="never").scan())
except ps.FormatError as error:
    print(error.message, error.byte)
"""
    said = run_python(code, seconds=20).strip()
    assert said == f"texts or lists are not contiguous {heap}"


def test_a_chunk_shorter_than_its_checksum_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (4,), "i8", chunks=(4,), fletcher32=True)
        x.id.write_direct_chunk((0,), b"ab")
    code = f"""
import penstock as ps
try:
    list(ps.open({str(path)!r}, index="never").scan())
except ps.FormatError as error:
    print(error.message)
"""
    assert "shorter than its checksum" in run_python(code)


def test_a_file_left_open_does_not_crash_python_at_exit(tmp_path: Path) -> None:
    path = made(tmp_path, s=["a", "b"])
    code = f"import penstock as ps\nds = ps.open({path!r})\nprint(next(iter(ds)))"
    assert run_python(code).strip() == "{'s': 'a'}"


def test_a_file_that_is_being_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = np.arange(3)
        file.flush()
        with pytest.raises(BlockingIOError, match="another program is writing"):
            opened(str(path))
        file.swmr_mode = True
        with pytest.raises(ps.FormatError, match="marked as being written"):
            opened(str(path))
    assert len(opened(str(path))) == 3


def test_an_empty_attribute_is_read(tmp_path: Path) -> None:
    path = made(tmp_path, x=np.arange(3))
    with h5py.File(path, "a") as file:
        file["x"].attrs["none"] = np.arange(0)
    assert opened(path).schema.field("x").metadata == {b"none": b"[]"}


def test_a_file_cut_anywhere_is_an_error(tmp_path: Path) -> None:
    data = small_file()
    path = tmp_path / "a.h5"
    for cut in range(0, len(data), 7):
        path.write_bytes(data[:cut])
        with pytest.raises(ps.FormatError) as caught:
            opened(str(path), format="hdf5")
        assert caught.value.file == str(path)


def test_a_record_in_more_chunks_than_the_file_has_bytes_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", shape=(4, 1 << 24), chunks=(1, 1), dtype="u1", compression="gzip")
    with pytest.raises(ps.LimitError, match="a record is in 16777216 chunks"):
        ps.open(tmp_path / "a.h5")
