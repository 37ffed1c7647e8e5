"""Files that try to run code or to open other files, and the folder in which they are placed."""

from __future__ import annotations

import io
import json
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as ps
from formats.tars import END, member
from fuzz.mds_shards import index_of, listed, one_column

SECRET = "a canary, not yours to read"
PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0\0:~\x9bU"
    b"\0\0\0\nIDATx\x9cc`\0\0\0\2\0\1H\xaf\xa4q\0\0\0\0IEND\xaeB`\x82"
)


class Bomb:
    """An object whose pickle writes a file when it is loaded."""

    def __init__(self, sung: Path) -> None:
        self._sung = sung

    def __reduce__(self) -> Any:
        return (Path.touch, (self._sung,))


class Place:
    """The place of a file: its folder, the canaries next to the folder, and the file that must not appear."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.outside = folder / "outside"
        self.sung = folder / "sung"
        self.bomb = pickle.dumps(Bomb(self.sung))
        self.folder.mkdir(parents=True)
        self.outside.mkdir()
        ps.write({"secret": [SECRET]}, self.outside / "canary.tfrecord", index=False)
        ps.write({"secret": [SECRET]}, self.outside / "canary.parquet", index=False)
        np.save(self.outside / "canary.npy", np.frombuffer(SECRET.encode(), np.uint8))
        (self.outside / "canary.bin").write_bytes(SECRET.encode() * 100)
        (self.outside / "canary.tar").write_bytes(member("0.txt", SECRET.encode()) + END)
        (self.outside / "canary.mds").write_bytes(one_column("str", [SECRET.encode()]))
        (self.outside / "canary.png").write_bytes(PNG + SECRET.encode())
        with h5py.File(self.outside / "canary.h5", "w") as file:
            file["secret"] = np.frombuffer(SECRET.encode(), np.uint8)
            file["0"] = np.arange(3)

    def put(self, name: str, data: bytes | str) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path


HOSTILE: dict[str, Callable[[Place], Path | str]] = {}


def hostile(make: Callable[[Place], Path | str]) -> Callable[[Place], Path | str]:
    HOSTILE[make.__name__] = make
    return make


def header(text: str) -> bytes:
    """An npy file of one record with this header text."""
    data = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(data)) + data + bytes(64)


def object_npy(bomb: bytes) -> bytes:
    return header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }")[:-64] + bomb


# -- NumPy ----------------------------------------------------------------------------------------


@hostile
def npy_of_a_pickle(place: Place) -> Path:
    return place.put("x.npy", object_npy(place.bomb))


@hostile
def npy_that_is_a_pickle(place: Place) -> Path:
    return place.put("x.npy", place.bomb)


@hostile
def npy_with_a_header_to_evaluate(place: Place) -> Path:
    call = f"__import__('pathlib').Path({str(place.sung)!r}).touch()"
    return place.put("x.npy", header(f"{{'descr': {call} or '|u1', 'shape': (1,)}}"))


@hostile
def npy_with_objects_in_a_structure(place: Place) -> Path:
    text = "{'descr': [('a', '|u1'), ('b', '|O')], 'fortran_order': False, 'shape': (1,), }"
    return place.put("x.npy", header(text)[:-64] + place.bomb)


def npz(place: Place, name: str, data: bytes) -> Path:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return place.put("x.npz", out.getvalue())


@hostile
def npz_of_a_pickle(place: Place) -> Path:
    return npz(place, "x.npy", object_npy(place.bomb))


@hostile
def npz_with_a_name_that_leads_out(place: Place) -> Path:
    return npz(place, "../outside/canary.npy", header("{}"))


@hostile
def npz_with_a_link(place: Place) -> Path:
    info = zipfile.ZipInfo("x.npy")
    info.create_system, info.external_attr = 3, 0o120777 << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(info, str(place.outside / "canary.npy"))
    return place.put("x.npz", out.getvalue())


# -- MessagePack, MDS, Arrow and Parquet ----------------------------------------------------------


@hostile
def msgpack_numpy_objects(place: Place) -> Path:
    array = {b"nd": True, b"type": "|O", b"kind": b"O", b"shape": [1], b"data": place.bomb}
    complexes = {b"complex": True, b"data": f"__import__('os').system('touch {place.sung}')"}
    return place.put("x.msgpack", msgpack.packb({"a": array, "b": complexes}))


@hostile
def msgpack_with_a_dtype_to_evaluate(place: Place) -> Path:
    kind = f"__import__('pathlib').Path({str(place.sung)!r}).touch()"
    array = {b"nd": True, b"type": kind, b"kind": b"V", b"shape": [1], b"data": place.bomb}
    return place.put("x.msgpack", msgpack.packb({"a": array}))


@hostile
def mds_pickle(place: Place) -> Path:
    return place.put("x.mds", one_column("pkl", [place.bomb]))


def mds_list(place: Place, name: str) -> str:
    data = (place.outside / "canary.mds").read_bytes()
    place.put("index.json", index_of(listed(name, data, 1)))
    return str(place.folder)


@hostile
def mds_index_that_leads_out(place: Place) -> str:
    return mds_list(place, "../outside/canary.mds")


@hostile
def mds_index_with_an_absolute_name(place: Place) -> str:
    return mds_list(place, str(place.outside / "canary.mds"))


@hostile
def mds_index_that_leads_in_and_out(place: Place) -> str:
    (place.folder / "in").mkdir()
    return mds_list(place, "in/../../outside/canary.mds")


@hostile
def arrow_extension_that_is_a_pickle(place: Place) -> Path:
    """pyarrow before 14.0.1 loaded such a pickle (CVE-2023-47248)."""
    marks = {"ARROW:extension:name": "arrow.py_extension_type"}
    field = pa.field("x", pa.int64(), metadata={**marks, "ARROW:extension:metadata": place.bomb})
    table = pa.table([pa.array([1])], schema=pa.schema([field]))
    with pa.ipc.new_file(str(place.folder / "x.arrow"), table.schema) as writer:
        writer.write(table)
    return place.folder / "x.arrow"


@hostile
def parquet_extension_that_is_a_pickle(place: Place) -> Path:
    marks = {"ARROW:extension:name": "arrow.py_extension_type"}
    field = pa.field("x", pa.int64(), metadata={**marks, "ARROW:extension:metadata": place.bomb})
    pq.write_table(pa.table([pa.array([1])], schema=pa.schema([field])), place.folder / "x.parquet")
    return place.folder / "x.parquet"


@hostile
def parquet_whose_columns_are_in_another_file(place: Place) -> Path:
    metadata = pq.read_metadata(place.outside / "canary.parquet")
    metadata.set_file_path("../outside/canary.parquet")
    metadata.write_metadata_file(str(place.folder / "x.parquet"))
    return place.folder / "x.parquet"


# -- tar ------------------------------------------------------------------------------------------


@hostile
def tar_of_pickles(place: Place) -> Path:
    names = ("0.pyd", "0.pkl", "0.pickle", "0.pth", "0.pt", "0.ten", "0.cls.pyd")
    members = [member(name, place.bomb) for name in names]
    zipped = npz(place, "x.npy", object_npy(place.bomb)).read_bytes()
    members += [member("0.npy", object_npy(place.bomb)), member("0.npz", zipped)]
    return place.put("x.tar", b"".join(members) + END)


@hostile
def tar_of_links(place: Place) -> Path:
    target = str(place.outside / "canary.bin")
    kinds = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
    members = [
        member(f"{n}.txt", type=kind, linkname=target, mode=0o777) for n, kind in enumerate(kinds)
    ]
    last = member("9.txt", b"data")
    return place.put("x.tar", b"".join(members) + last + END)


@hostile
def tar_of_names_that_lead_out(place: Place) -> Path:
    absolute = str(place.outside / "canary")
    names = ["../outside/canary.txt", f"{absolute}.txt", "pipe:cat canary.txt", "file://x.txt"]
    members = [member(name[:100], b"data") for name in names]
    members.append(member("7.json", json.dumps({"__url__": absolute}).encode()))
    return place.put("x.tar", b"".join(members) + END)


def shard_list(place: Place, **facts: Any) -> Path:
    return place.put("x.json", json.dumps({"wids_version": 1, **facts}))


def shards(*urls: str) -> dict[str, Any]:
    return {"shardlist": [{"url": url, "nsamples": 1} for url in urls]}


@hostile
def list_of_shards_that_leads_out(place: Place) -> Path:
    return shard_list(place, **shards("../outside/canary.tar"))


@hostile
def list_of_shards_with_an_absolute_name(place: Place) -> Path:
    return shard_list(place, **shards(str(place.outside / "canary.tar")))


@hostile
def list_of_shards_with_a_base_that_leads_out(place: Place) -> Path:
    return shard_list(place, base="../outside", **shards("canary.tar"))


@hostile
def list_of_shards_with_a_command(place: Place) -> Path:
    return shard_list(place, **shards(f"pipe:touch {place.sung}"))


@hostile
def list_of_shards_by_a_url(place: Place) -> Path:
    return shard_list(place, **shards(f"file://{place.outside}/canary.tar"))


@hostile
def list_of_shards_elsewhere(place: Place) -> Path:
    return shard_list(place, datasets=[{"source_url": "http://localhost:1/x.json"}])


@hostile
def list_of_lists_that_lead_out(place: Place) -> Path:
    (place.outside / "x.json").write_text(json.dumps(shards("canary.tar")))
    return shard_list(place, datasets=[{"source_url": "../outside/x.json"}])


# -- HDF5 -----------------------------------------------------------------------------------------


@hostile
def hdf5_external_link(place: Place) -> Path:
    with h5py.File(place.folder / "x.h5", "w") as file:
        file["x"] = h5py.ExternalLink(str(place.outside / "canary.h5"), "/secret")
    return place.folder / "x.h5"


@hostile
def hdf5_soft_link_through_an_external_one(place: Place) -> Path:
    with h5py.File(place.folder / "x.h5", "w") as file:
        file["b"] = np.arange(3)
        file.create_group("z")["out"] = h5py.ExternalLink(str(place.outside / "canary.h5"), "/")
        file["a"] = h5py.SoftLink("/z/out/secret")
    return place.folder / "x.h5"


@hostile
def hdf5_external_values(place: Place) -> Path:
    with h5py.File(place.folder / "x.h5", "w") as file:
        outside = [(str(place.outside / "canary.bin"), 0, 20)]
        file.create_dataset("x", (20,), "u1", external=outside)
    return place.folder / "x.h5"


@hostile
def hdf5_virtual_values(place: Place) -> Path:
    layout = h5py.VirtualLayout((27,), "u1")
    layout[:] = h5py.VirtualSource(str(place.outside / "canary.h5"), "secret", (27,))
    with h5py.File(place.folder / "x.h5", "w") as file:
        file.create_virtual_dataset("x", layout)
    return place.folder / "x.h5"


@hostile
def hdf5_virtual_values_of_any_number(place: Place) -> Path:
    """Merely asking for the shape of such a dataset opens its sources."""
    layout = h5py.VirtualLayout((3,), "i8", maxshape=(None,))
    source = h5py.VirtualSource(str(place.outside / "canary.h5"), "0", (3,), maxshape=(None,))
    layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
    with h5py.File(place.folder / "x.h5", "w", libver="latest") as file:
        file.create_virtual_dataset("x", layout)
    return place.folder / "x.h5"


# -- folders of images ----------------------------------------------------------------------------


def table_naming(place: Place, kind: str, name: str) -> str:
    place.put("0.png", PNG)
    if kind == "csv":
        place.put("metadata.csv", f"file_name,label\n{name},1\n")
    elif kind == "jsonl":
        place.put("metadata.jsonl", json.dumps({"file_name": name, "label": 1}))
    else:
        pq.write_table(pa.table({"file_name": [name]}), place.folder / "metadata.parquet")
    return str(place.folder)


@hostile
def image_table_csv_that_leads_out(place: Place) -> str:
    return table_naming(place, "csv", "../outside/canary.png")


@hostile
def image_table_json_with_an_absolute_name(place: Place) -> str:
    return table_naming(place, "jsonl", str(place.outside / "canary.png"))


@hostile
def image_table_parquet_that_leads_out(place: Place) -> str:
    return table_naming(place, "parquet", "x/../../outside/canary.png")


@hostile
def image_that_is_a_link(place: Place) -> str:
    place.put("0.png", PNG)
    (place.folder / "1.png").symlink_to(place.outside / "canary.png")
    return str(place.folder)


@hostile
def class_that_is_a_link(place: Place) -> str:
    place.put("a/0.png", PNG)
    (place.folder / "b").symlink_to(place.outside)
    return str(place.folder)


@hostile
def image_table_that_is_a_link(place: Place) -> str:
    place.put("0.png", PNG)
    (place.folder / "metadata.parquet").symlink_to(place.outside / "canary.parquet")
    return str(place.folder)
