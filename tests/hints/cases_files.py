"""Hints about files that are not what their names say, or that penstock reads in a different way than the user
expects."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pickle
import shutil
import subprocess
import warnings
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet as pq
from steps import Case, Cases, Make, rows

import penstock as ps

TWO = [{"a": 1}, {"a": 2}]


# -- files that exist, and files that do not ------------------------------------------------------


def taken_away() -> Case:
    pq.write_table(pa.table({"a": [1, 2]}), "a.parquet")
    loader = ps.Loader(ps.open("a.parquet"), 2)
    Path("a.parquet").rename("b.parquet")

    def put_back() -> None:
        Path("b.parquet").rename("a.parquet")
        assert rows("a.parquet") == TWO

    return Case(lambda: list(loader), put_back)


def a_pipe() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord", index=False)
    os.mkfifo("pipe")

    def saved() -> None:
        with subprocess.Popen("cat a.tfrecord > pipe", shell=True):
            Path("b.tfrecord").write_bytes(Path("pipe").read_bytes())
        assert rows("b.tfrecord") == TWO

    return Case(lambda: ps.open("pipe"), saved)


def _linked() -> Callable[[], list[str]]:
    pixels = np.arange(384, dtype=np.uint8).reshape(2, 8, 8, 3)
    ps.write({"image": ps.encode_images(pixels, "png")}, "pets", format="imagefolder")
    Path("pets/00000001.png").rename("outside.png")
    Path("pets/b.png").symlink_to("../outside.png")
    return lambda: [row["file_name"] for row in rows("pets")]


def a_linked_picture_is_read() -> Case:
    names = _linked()

    def followed() -> None:
        assert [one["file_name"] for one in ps.open("pets", follow_links=True)] == [
            "00000000.png",
            "b.png",
        ]

    return Case(names, followed)


def a_linked_picture_is_put_there() -> Case:
    names = _linked()

    def copied() -> None:
        Path("pets/b.png").unlink()
        shutil.copy("outside.png", "pets/b.png")
        assert names() == ["00000000.png", "b.png"]

    return Case(names, copied)


def a_linked_picture_is_removed() -> Case:
    names = _linked()

    def removed() -> None:
        Path("pets/b.png").unlink()
        assert names() == ["00000000.png"]

    return Case(names, removed)


def no_bytes() -> Case:
    Path("a.parquet").write_bytes(b"")

    def written() -> None:
        ps.write({"a": [1, 2]}, "a.parquet", overwrite=True)
        assert rows("a.parquet") == TWO

    return Case(lambda: ps.open("a.parquet"), written)


def a_summary() -> Case:
    table, footers = pa.table({"a": [1, 2]}), []
    Path("set").mkdir()
    pq.write_table(table, "set/a.parquet", metadata_collector=footers)
    footers[0].set_file_path("a.parquet")
    pq.write_metadata(table.schema, "set/_metadata", metadata_collector=footers)

    def folder() -> None:
        assert rows("set") == TWO

    return Case(lambda: ps.open("set/_metadata"), folder)


def a_format_that_no_bytes_tell() -> Case:
    ps.write({"a": [1]}, "a.msgpack", index=False)
    Path("a.msgpack").rename("a.bin")

    def named() -> None:
        assert rows("a.bin", format="msgpack") == [{"a": 1}]

    return Case(lambda: ps.open("a.bin"), named)


# -- files that are not read as they are ----------------------------------------------------------


def feather_1() -> Case:
    old, new = "old", "new.arrow"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pyarrow.feather.write_feather(pa.table({"a": [1, 2]}), old, version=1)

    def again() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pyarrow.feather.write_feather(pyarrow.feather.read_table(old), new)
        assert rows(new) == TWO

    return Case(lambda: ps.open(old, format="arrow"), again)


def _packed_tar() -> bytes:
    ps.write({"txt": ["one", "two"]}, "plain.tar", index=False)
    data = Path("plain.tar").read_bytes()
    Path("a.tar").write_bytes(bz2.compress(data))
    return data


def _texts(path: str) -> list[str]:
    return [row["txt"] for row in rows(path)]


def an_archive_is_unpacked() -> Case:
    _packed_tar()

    def unpacked() -> None:
        Path("b.tar").write_bytes(bz2.decompress(Path("a.tar").read_bytes()))
        assert _texts("b.tar") == ["one", "two"]

    return Case(lambda: ps.open("a.tar"), unpacked)


def an_archive_is_gzipped() -> Case:
    data = _packed_tar()
    Path("a.tar").write_bytes(lzma.compress(data))

    def gzipped() -> None:
        Path("b.tar.gz").write_bytes(gzip.compress(lzma.decompress(Path("a.tar").read_bytes())))
        assert _texts("b.tar.gz") == ["one", "two"]

    return Case(lambda: ps.open("a.tar"), gzipped)


def _marked_as_written() -> bytes:
    """A file whose writer died, and the bytes that h5clear turns it into."""
    with h5py.File("a.h5", "w", libver="latest") as file:
        file["a"] = np.arange(1, 3)
        file.flush()
        file.swmr_mode = True
        dead = Path("a.h5").read_bytes()
    whole = Path("a.h5").read_bytes()
    Path("a.h5").write_bytes(dead)
    return whole


def a_writer_that_died() -> Case:
    whole = _marked_as_written()

    def cleared() -> None:
        data = bytearray(Path("a.h5").read_bytes())
        # h5clear -s clears the marks and updates the checksum of the superblock, 48 bytes in all.
        data[:48] = whole[:48]
        Path("a.h5").write_bytes(data)
        assert rows("a.h5") == TWO

    return Case(lambda: ps.open("a.h5"), cleared)


def python_objects() -> Case:
    np.save("a.npy", np.array(["one", 2], object))

    def as_text() -> None:
        np.save("b.npy", np.load("a.npy", allow_pickle=True).astype(str))
        assert rows("b.npy") == [{"data": "one"}, {"data": "2"}]

    return Case(lambda: ps.open("a.npy"), as_text)


def two_arrays_of_one_name() -> Case:
    with zipfile.ZipFile("a.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns of the second name
        for values in ([5, 6], [1, 2]):
            file = BytesIO()
            np.save(file, np.array(values))
            archive.writestr("a.npy", file.getvalue())

    def again() -> None:
        np.savez("b.npz", a=np.load("a.npz")["a"])
        assert rows("b.npz") == TWO

    return Case(lambda: ps.open("a.npz"), again)


def an_unfinished_beton() -> Case:
    ps.write({"a": [1, 2]}, "a.beton")
    data = bytearray(Path("a.beton").read_bytes())
    data[16:24] = bytes(8)
    Path("a.beton").write_bytes(data)

    def again() -> None:
        ps.write({"a": [1, 2]}, "a.beton", overwrite=True)
        assert rows("a.beton") == TWO

    return Case(lambda: ps.open("a.beton"), again)


def a_field_of_the_users_own() -> Case:
    ps.write({"box": [1, 2], "a": [1, 2]}, "a.beton")
    data = bytearray(Path("a.beton").read_bytes())
    data[24] = 255
    Path("a.beton").write_bytes(data)

    def told() -> None:
        found = rows("a.beton", custom_fields={"box": "<u8"})
        assert found == [{"box": bytes([n, *bytes(7)]), "a": n} for n in (1, 2)]

    return Case(lambda: ps.open("a.beton"), told)


# -- what a file looks like -----------------------------------------------------------------------


def _look(name: str, data: bytes, hint: str, advised: Callable[[], Any]) -> Case:
    Path(name).write_bytes(data)
    return Case(lambda: ps.open(name), advised, hint)


def _packed_parquet() -> bytes:
    file = BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), file)
    return file.getvalue()


def a_zip_archive() -> Case:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("b.parquet", _packed_parquet())

    def unpacked() -> None:
        zipfile.ZipFile("a.zip").extractall()
        assert rows("b.parquet") == TWO

    return _look("a.zip", file.getvalue(), "unpack it first", unpacked)


def _pickled(protocol: int) -> Make:
    def make() -> Case:
        def written() -> None:
            ps.write(pickle.loads(Path("a.pkl").read_bytes()), "a.parquet")
            assert rows("a.parquet") == TWO

        hint = "ps.write(...) its contents in the program that made it"
        return _look("a.pkl", pickle.dumps({"a": [1, 2]}, protocol), hint, written)

    make.__name__ = f"a_pickle_{protocol}"
    return make


def _picture() -> bytes:
    pixels = np.arange(192, dtype=np.uint8).reshape(1, 8, 8, 3)
    return ps.encode_images(pixels, "png")[0].as_py()


PICTURE = 'open(..., format="imagefolder") with its folder, or decode_images([...]) with its bytes'


def a_picture_in_its_folder() -> Case:
    Path("pets").mkdir()
    (data,) = (_picture(),)

    def folder() -> None:
        assert [row["image"] for row in rows("pets", format="imagefolder")] == [data]

    return _look("pets/a.png", data, PICTURE, folder)


def a_picture_by_its_bytes() -> Case:
    def decoded() -> None:
        (pixels,) = ps.decode_images([Path("a.png").read_bytes()])
        assert np.asarray(pixels).reshape(-1).tolist() == list(range(192))

    return _look("a.png", _picture(), PICTURE, decoded)


def gzip_in_gzip() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord.gz", index=False)
    data = gzip.compress(Path("a.tfrecord.gz").read_bytes())

    def one_off() -> None:
        subprocess.run("gzip -dc b.tfrecord.gz > FILE", shell=True, check=True)
        assert rows("FILE") == TWO

    return _look(
        "b.tfrecord.gz", data, "gzip -dc b.tfrecord.gz > FILE, which removes one layer", one_off
    )


def a_pointer() -> Case:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"

    def pulled() -> None:
        Path("a.parquet").write_bytes(_packed_parquet())
        assert rows("a.parquet") == TWO

    return _look("a.parquet", pointer, "git lfs pull, which downloads the file itself", pulled)


def _downloaded(data: bytes) -> Case:
    def again() -> None:
        Path("a.parquet").write_bytes(_packed_parquet())
        assert rows("a.parquet") == TWO

    hint = "download it again: this is a server's reply, not the file"
    return _look("a.parquet", data, hint, again)


def a_web_page() -> Case:
    return _downloaded(b"<!doctype html><html>no</html>")


def an_answer_in_xml() -> Case:
    return _downloaded(b"<?xml version='1.0'?><Error/>")


def _made(name: str, text: str, made: str, which: str, gives: Any) -> Case:
    def advised() -> None:
        with Path(name).open() as file:  # the user's call would not close the file
            known = {"ps": ps, "pyarrow": pyarrow, "json": json, "open": lambda _: file}
            eval(made.replace("...)", "'a.parquet')"), known)
        assert rows("a.parquet") == gives

    return _look(name, text.encode(), f"{made}, which writes {which} as records", advised)


def lines_of_json() -> Case:
    made = "ps.write(pyarrow.json.read_json('a.jsonl'), ...)"
    return _made("a.jsonl", '{"a": 1}\n{"a": 2}\n', made, "them", TWO)


def json_text() -> Case:
    made = "ps.write(json.load(open('a.json')), ...)"
    return _made("a.json", '[{"a": 1},\n {"a": 2}]', made, "a list of objects", TWO)


def csv_text() -> Case:
    made = "ps.write(pyarrow.csv.read_csv('a.csv'), ...)"
    return _made("a.csv", "a,b\n1,x\n", made, "its rows", [{"a": 1, "b": "x"}])


def tabbed_text() -> Case:
    how = "parse_options=pyarrow.csv.ParseOptions(delimiter='\\t')"
    made = f"ps.write(pyarrow.csv.read_csv('a.tsv', {how}), ...)"
    return _made("a.tsv", "a\tb\n1\tx\n", made, "its rows", [{"a": 1, "b": "x"}])


def plain_text() -> Case:
    made = "ps.write([{\"text\": line} for line in open('a.txt')], ...)"
    gives = [{"text": "one\n"}, {"text": "two\n"}]
    return _made("a.txt", "one\ntwo\n", made, "its lines", gives)


CASES: Cases = {
    "'put it back and open the data again'": taken_away,
    "'save its output to a file'": a_pipe,
    "'open(..., follow_links=True), or put the file itself there, or remove the link'": (
        a_linked_picture_is_read,
        a_linked_picture_is_put_there,
        a_linked_picture_is_removed,
    ),
    "'write or copy it again; it was truncated, or never finished'": no_bytes,
    "f\"open({os.path.dirname(source.path) or '.'!r}), the folder with the files\"": a_summary,
    "f'open(..., format=...) with one of: {known}'": a_format_that_no_bytes_tell,
    "'pyarrow.feather.write_feather(pyarrow.feather.read_table(old), new)'": feather_1,
    "'decompress it first, or compress it with gzip'": (
        an_archive_is_unpacked,
        an_archive_is_gzipped,
    ),
    "'if no program is writing it, run h5clear -s FILE'": a_writer_that_died,
    "'write it again as numbers or text; penstock unpickles nothing'": python_objects,
    "'write the file again'": two_arrays_of_one_name,
    "'write the file again; its records cannot be recovered'": an_unfinished_beton,
    'f\'open(..., custom_fields={{"{name}": "<u8,<u8"}}), with the dtype of its metadata\'': (
        a_field_of_the_users_own
    ),
    "look.hint": (
        a_zip_archive,
        *map(_pickled, (2, 3, 4, 5)),
        a_picture_in_its_folder,
        a_picture_by_its_bytes,
        gzip_in_gzip,
        a_pointer,
        a_web_page,
        an_answer_in_xml,
        lines_of_json,
        json_text,
        csv_text,
        tabbed_text,
        plain_text,
    ),
}
