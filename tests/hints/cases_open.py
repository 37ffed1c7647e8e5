"""Hints that `ps.open` gives for files of other programs and for folders."""

from __future__ import annotations

import gzip
import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest
from array_record.python.array_record_module import ArrayRecordWriter
from steps import IMAGES, Case, Cases, folder_of_images, png, rows, twice

import penstock as ps
from fuzz.mds_shards import shard, simple
from fuzz.riegeli_files import SIGNATURE, chunk


def foreign_checksums() -> Case:
    head = (1).to_bytes(8, "little") + bytes(4)
    Path("a").write_bytes((head + b"x" + bytes(4)) * 3)

    def unchecked() -> None:
        found = ps.open("a", format="tfrecord", checksums="none", raw=True).take([0, 1, 2])
        assert found.column(0).to_pylist() == [b"x"] * 3

    return Case(lambda: rows("a"), unchecked)


def packed() -> Case:
    pq.write_table(pa.table({"a": [1]}), "plain.parquet")
    Path("a.parquet").write_bytes(gzip.compress(Path("plain.parquet").read_bytes()))

    def unpack() -> None:
        Path("b.parquet").write_bytes(gzip.decompress(Path("a.parquet").read_bytes()))
        assert rows("b.parquet") == [{"a": 1}]

    return Case(lambda: rows("a.parquet"), unpack)


def no_python_value() -> Case:
    days = pa.array([date.max.toordinal()], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"a": days}), "a.parquet")

    def as_arrow() -> None:
        assert ps.open("a.parquet").take([0]).column("a").equals(days)
        assert next(ps.open("a.parquet").scan()).column("a").equals(days)

    return Case(lambda: ps.open("a.parquet")[0], as_arrow)


def numbers_of_two_kinds() -> Case:
    ps.write({"a": [1]}, "a.tfrecord"), ps.write({"a": [0.5]}, "b.tfrecord")
    Path("c.tfrecord").write_bytes(
        Path("a.tfrecord").read_bytes() + Path("b.tfrecord").read_bytes()
    )
    case = twice(rows, "c.tfrecord", types={"a": "float64"}, gives=[{"a": 1.0}, {"a": 0.5}])
    return case._replace(hint="open(..., types={'a': 'float64'})")


def bytes_and_numbers() -> Case:
    for name, value in (("a", 1), ("b", b"x")):
        ps.write({"a": [value], "b": [2]}, f"{name}.tfrecord")
    Path("c.tfrecord").write_bytes(
        Path("a.tfrecord").read_bytes() + Path("b.tfrecord").read_bytes()
    )
    schema = pa.schema([("b", pa.int64())])
    case = twice(rows, "c.tfrecord", schema=schema, gives=[{"b": 2}, {"b": 2}])
    hint = "open(..., schema=...) without this field, and the other fields you want"
    return case._replace(hint=hint)


def files_of_two_kinds() -> Case:
    ps.write({"a": [1]}, "a.tfrecord"), ps.write({"a": [0.5]}, "b.tfrecord")
    names = ["a.tfrecord", "b.tfrecord"]

    def with_the_type() -> None:
        found = rows(names, infer_records="all", types={"a": "float64"})
        assert found == [{"a": 1.0}, {"a": 0.5}]

    hint = "open(..., types={'a': 'float64'})"
    return Case(lambda: ps.open(names, infer_records="all"), with_the_type, hint)


def text_and_numbers() -> Case:
    ps.write({"a": [1]}, "a.parquet"), ps.write({"a": ["x"]}, "b.parquet")
    names = ["a.parquet", "b.parquet"]

    def with_the_type() -> None:
        found = rows(names, infer_records="all", types={"a": "string"})
        assert found == [{"a": "1"}, {"a": "x"}]

    hint = "open(..., types={'a': 'string'})"
    return Case(lambda: ps.open(names, infer_records="all"), with_the_type, hint)


def class_names_of_bytes() -> Case:
    labels = pa.array(["a", "b"]).dictionary_encode()
    ps.write({"label": labels, "x": [1, 2]}, "a.parquet")
    names = {"label": ["a", "\udcff"]}  # as `os.listdir` returns a folder name that is not UTF-8

    def without_it() -> None:
        (batch,) = ps.Loader(ps.open("a.parquet", columns=["x"]), 2)
        assert {name: values.tolist() for name, values in batch.items()} == {"x": [1, 2]}

    return Case(lambda: ps.Loader(ps.open("a.parquet"), 2, class_names=names), without_it)


# -- files of other programs ----------------------------------------------------------------------


def plain_riegeli() -> Case:
    records = [b"one", b"two"]
    Path("a.riegeli").write_bytes(SIGNATURE + chunk(records))

    def copied() -> None:
        writer = ArrayRecordWriter("b.array_record", "group_size:1")
        for record in records:
            writer.write(record)
        writer.close()
        ps.write(records, "b.tfrecord")
        for path in ("b.array_record", "b.tfrecord"):
            found = ps.open(path, raw=True).take([0, 1]).column(0)
            assert found.to_pylist() == records

    return Case(lambda: rows("a.riegeli"), copied)


class Keys(encryption.KmsClient):
    """A key service that stores keys unencrypted, as hexadecimal text."""

    def wrap_key(self, key: bytes, master: str) -> bytes:
        return key.hex().encode()

    def unwrap_key(self, key: str, master: str) -> bytes:
        return bytes.fromhex(key)


def encrypted(*, plaintext_footer: bool) -> Case:
    factory = encryption.CryptoFactory(lambda _: Keys())
    service = encryption.KmsConnectionConfig()
    plan = encryption.EncryptionConfiguration(
        "footer", column_keys={"c": ["a"]}, plaintext_footer=plaintext_footer
    )
    how: Any = factory.file_encryption_properties(service, plan)
    table = pa.table({"a": [1, 2]})
    with pq.ParquetWriter("a.parquet", table.schema, encryption_properties=how) as writer:
        writer.write_table(table)

    def decrypted() -> None:
        own = factory.file_decryption_properties(service, encryption.DecryptionConfiguration())
        found = pq.ParquetFile("a.parquet", decryption_properties=own).read()
        pq.write_table(found, "b.parquet")
        assert rows("b.parquet") == [{"a": 1}, {"a": 2}]

    return Case(lambda: rows("a.parquet"), decrypted)


def encrypted_file() -> Case:
    return encrypted(plaintext_footer=False)


def encrypted_column() -> Case:
    return encrypted(plaintext_footer=True)


def packed_mds() -> Case:
    data = simple(list(range(3000)))
    Path("a.mds.zstd").write_bytes(pa.Codec("zstd").compress(data, asbytes=True))

    def read(most: int) -> list[int]:
        return [record["x"] for record in rows("a.mds.zstd", limits={"member_bytes": most})]

    def advised() -> None:
        assert read(1 << 20) == list(range(3000))

    hint = "open(..., limits={'member_bytes': ...})"
    return Case(lambda: read(20_000), advised, hint)


def pickles() -> Case:
    columns = {"bad": ("pkl", None), "x": ("uint8", 1)}
    Path("a.mds").write_bytes(shard(columns, [{"bad": b"N.", "x": b"\7"}]))
    return twice(rows, "a.mds", columns=["x"], gives=[{"x": 7}])


def damaged_types() -> Case:
    table = pa.table({"a": pa.array(["p", "q"], pa.large_string()), "b": [1, 2]})
    ps.write(table, "a.npz")
    data = bytearray(Path("a.npz").read_bytes())
    data[-20] ^= 1
    Path("a.npz").write_bytes(data)

    def advised() -> None:
        assert rows("a.npz", damage="skip") == table.to_pylist()
        assert pa.table(ps.open("a.npz", schema=table.schema)).equals(table)
        assert not ps.verify("a.npz").ok

    return Case(lambda: rows("a.npz"), advised)


def raw_of_columns() -> Case:
    ps.write({"a": [1]}, "a.parquet")

    def without() -> None:
        assert rows("a.parquet") == [{"a": 1}]

    return Case(lambda: rows("a.parquet", raw=True), without)


def tar_of(path: str, *values: int) -> None:
    ps.write({"n": list(values)}, path, index=False)


def pipe() -> Case:
    tar_of("a.tar", 1, 2)

    def opened() -> None:
        assert [record["n"] for record in rows("a.tar")] == [1, 2]
        assert [record["n"] for record in rows(ps.Pipe(["cat", "a.tar"]))] == [1, 2]

    return Case(lambda: rows("pipe:cat a.tar"), opened)


def list_that_leads_out() -> Case:
    Path("d").mkdir()
    tar_of("d/a.tar", 1)
    tar_of("b.tar", 2)
    shards = [{"url": url, "nsamples": 1} for url in ("a.tar", "../b.tar")]
    Path("d/index.json").write_text(json.dumps({"wids_version": 1, "shardlist": shards}))

    def as_list() -> None:
        assert [record["n"] for record in rows(["d/a.tar", "b.tar"])] == [1, 2]

    return Case(lambda: rows("d/index.json"), as_list)


# -- folders of images ----------------------------------------------------------------------------


def labels(**options: Any) -> list[tuple[bytes, int]]:
    return [(record["image"], record["label"]) for record in rows("d", **options)]


LABELLED = [(IMAGES["0.png"], 7), (IMAGES["1.png"], 8)]


def semicolons() -> Case:
    folder_of_images(csv="file_name;label\n0.png;7\n1.png;8\n")

    def advised() -> None:
        table = pa.table({"file_name": ["0.png", "1.png"], "label": [7, 8]})
        lines = "".join(json.dumps(row) + "\n" for row in table.to_pylist())
        folder_of_images(csv="file_name,label\n0.png,7\n1.png,8\n")
        assert labels() == LABELLED
        Path("d/metadata.csv").unlink()
        pq.write_table(table, "d/metadata.parquet")
        assert labels() == LABELLED
        Path("d/metadata.parquet").unlink()
        folder_of_images(jsonl=lines)
        assert labels() == LABELLED

    return Case(labels, advised)


def two_columns_of_images() -> Case:
    folder_of_images(csv="file_name,image\n0.png,7\n1.png,8\n")

    def advised() -> None:
        only = rows("d", table="", other_files="ignore")
        assert [record["image"] for record in only] == list(IMAGES.values())
        folder_of_images(csv="file_name,label\n0.png,7\n1.png,8\n")
        assert labels() == LABELLED

    return Case(lambda: rows("d"), advised)


def image_without_a_row() -> Case:
    folder_of_images(csv="file_name,label\n0.png,7\n1.png,8\n")
    Path("d/2.png").write_bytes(png(2))

    def advised() -> None:
        assert labels(other_files="ignore") == LABELLED

    return Case(labels, advised)


def file_of_no_image() -> Case:
    folder_of_images()
    Path("d/notes.doc").write_bytes(
        b"no image"
    )  # so that only format= determines what the folder is
    with pytest.raises(ps.FormatError) as caught:
        ps.open("d")
    assert str(caught.value.hint).startswith('open(..., format="imagefolder")')

    def advised() -> None:
        found = ps.open("d", format="imagefolder", other_files="ignore")
        assert [record["image"] for record in found] == list(IMAGES.values())
        assert [Path(one.path).name for one in found.skipped_files] == ["notes.doc"]

    return Case(lambda: rows("d", format="imagefolder"), advised)


CASES: Cases = {
    '"copy its records to an ArrayRecord or TFRecord file with riegeli\'s own reader"': plain_riegeli,
    "'decrypt it with the program that wrote it'": (encrypted_file, encrypted_column),
    "raise_limit('member_bytes', ...)": packed_mds,
    "'leave it out: open(..., columns=[...])'": pickles,
    "'open(..., damage=\"skip\"), or schema='": damaged_types,
    "'open it without raw=True'": raw_of_columns,
    '\'open(...) the files it reads, or open(ps.Pipe(["gsutil", "cat", …])), a list of arguments\'': pipe,
    "'open(...) with a list of the shards themselves'": list_that_leads_out,
    "\"write the table with ',' between its columns, or as Parquet or JSON lines\"": semicolons,
    '\'give one of the two another name, or open(..., table="", other_files="ignore")\'': (
        two_columns_of_images
    ),
    "'open(..., other_files=\"ignore\")'": (image_without_a_row, file_of_no_image),
    '\'open(..., format="tfrecord", checksums="none")\'': foreign_checksums,
    "'decompress it first'": packed,
    "'take or scan, which return it as Arrow'": no_python_value,
    "_how_to_read(name, [kind[1] for kind in kinds])": (numbers_of_two_kinds, bytes_and_numbers),
    "_how_to_read(one.name, kinds, are_stored=are_stored)": (files_of_two_kinds, text_and_numbers),
    "'leave it out: columns=[...]'": class_names_of_bytes,
}
