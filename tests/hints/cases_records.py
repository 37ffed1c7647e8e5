"""Hints about single records and values that are damaged, too large, or do not fit."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from PIL import Image
from steps import Case, Cases, equal_in, folder_of_images, left_out, png, rows, twice

import frames
import penstock as ps
from formats.protobuf_example import Example
from penstock import Limits

# -- files elsewhere ------------------------------------------------------------------------------


def in_a_bucket() -> Case:
    ps.write({"a": [1]}, "there.tfrecord")

    def copied() -> None:
        Path("a.tfrecord").write_bytes(Path("there.tfrecord").read_bytes())
        assert rows("a.tfrecord") == [{"a": 1}]

    hint = "copy the files to this machine, or mount them as a folder, and use those paths"
    return Case(lambda: rows("s3://bucket/a.tfrecord"), copied, hint)


def as_an_address() -> Case:
    ps.write({"a": [1]}, "a.tfrecord")
    address = f"file://{Path('a.tfrecord').absolute()}"

    def without() -> None:
        assert rows(address.removeprefix("file://")) == [{"a": 1}]

    return Case(lambda: rows(address), without)


# -- limits ---------------------------------------------------------------------------------------


def follow(hint: str, path: str, **options: Any) -> list[Any]:
    """Open a file with the limits that a hint names."""
    limits = eval(hint.removeprefix("open(..., limits=").split(")", maxsplit=1)[0])
    return rows(path, limits=limits, **options)


def advised_limit(path: str, wanted: list[Any], hint: str, **limits: int) -> Case:
    def advised() -> None:
        assert follow(hint, path) == wanted

    return Case(lambda: rows(path, limits=limits), advised, hint)


def large_image() -> Case:
    folder_of_images(csv="file_name\n0.png\n1.png\n")
    size = Path("d/0.png").stat().st_size
    wanted = rows("d")
    return advised_limit(
        "d", wanted, f"open(..., limits={{'record_bytes': {size}}})", record_bytes=9
    )


def large_frame() -> Case:
    ps.write([b"x" * 5000], "a.tfrecord", index=False)
    hint = "open(..., limits={'record_bytes': 5000})"

    def advised() -> None:
        assert follow(hint, "a.tfrecord", raw=True) == [{"record": b"x" * 5000}]

    return Case(lambda: rows("a.tfrecord", raw=True, limits={"record_bytes": 9}), advised, hint)


def large_page() -> Case:
    table = pa.table({"a": ["x" * 5000], "b": [1]})
    pq.write_table(table, "a.parquet")
    small = {"record_bytes": 4000}
    with_limit = "open(..., limits={'record_bytes': "

    def refused() -> None:
        try:
            rows("a.parquet", limits=small)
        except ps.LimitError as error:
            hint = str(error.hint)
            assert hint.startswith(with_limit) and hint.endswith("), or read other columns")
            assert follow(hint, "a.parquet") == table.to_pylist()
            raise

    def other_columns() -> None:
        assert rows("a.parquet", limits=small, columns=["b"]) == [{"b": 1}]

    return Case(refused, other_columns)


def deep_values() -> Case:
    data = b"\x81\xa1a" + b"\x91" * 200 + b"\x01"
    Path("a.msgpack").write_bytes(data)

    def advised() -> None:
        assert len(ps.open("a.msgpack", limits={"nesting": 300})) == 1
        assert rows("a.msgpack", raw=True) == [{"record": data}]

    return Case(lambda: rows("a.msgpack"), advised)


def many_pixels() -> Case:
    def advised() -> None:
        (pixels,) = ps.decode_images([png(9)], limits=Limits(image_pixels=2))
        assert pixels.tolist() == [[[9] * 3] * 2]

    limits = Limits(image_pixels=1)
    hint = "limits=penstock.Limits(image_pixels=2)"
    return Case(lambda: ps.decode_images([png(9)], limits=limits), advised, hint)


# -- damage ---------------------------------------------------------------------------------------


def cut_picture() -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (1, 40, 40, 3), np.uint8)
    whole = ps.encode_images(pixels, "jpeg")[0].as_py()
    return whole[: len(whole) // 2]


def half_of_a_picture() -> Case:
    def advised() -> None:
        (pixels,) = ps.decode_images([cut_picture()], allow_damaged=True)
        assert pixels.shape == (40, 40, 3) and pixels[:8].any()

    hint = "allow_damaged=True, to decode the intact part of a damaged JPEG"
    return Case(lambda: ps.decode_images([cut_picture()]), advised, hint)


def half_of_a_picture_to_encode() -> Case:
    ps.write({"id": [0, 1], "image": [png(1), cut_picture()]}, "a.tar")

    def converted(source: Any) -> list[int]:
        ps.convert(source, "b.tar", image_mode="jpg", max_side=8, overwrite=True)
        return [row["id"] for row in rows("b.tar")]

    def advised() -> None:
        call = [sys.executable, "-m", "penstock", "repair", "--decode", "a.tar", "--into", "w.tar"]
        subprocess.run(call, check=True)
        assert converted("w.tar") == [0]
        assert converted(ps.open("a.tar", damage="skip")) == [0]

    return Case(lambda: converted("a.tar"), advised)


def masks_where_pictures_are_colours() -> Case:
    ps.write({"id": [0, 1], "seg": [png(1), png(2)]}, "a.parquet")
    how: dict[str, Any] = {"masks": ["seg"], "max_side": 1, "overwrite": True}

    def advised() -> None:
        ps.convert("a.parquet", "a.beton", columns=["id"], max_side=1)
        ps.convert("a.parquet", "b.parquet", **how)

    return Case(lambda: ps.convert("a.parquet", "b.beton", **how), advised)


def broken_picture_of_a_loader() -> Case:
    ps.write({"image": [png(1), b"no image", png(3)]}, "a.parquet")

    def greys(**options: Any) -> list[int]:
        (batch,) = ps.Loader(ps.open("a.parquet", **options), 3, decode={"image": ps.Image()})
        return [int(pixels[0, 0, 0]) for pixels in batch["image"]]

    def advised() -> None:
        assert greys(damage="skip") == [1, 3]

    return Case(greys, advised, 'open(..., damage="skip"), to skip damaged records')


def half_of_a_picture_in_a_loader() -> Case:
    ps.write({"image": [cut_picture()]}, "a.parquet")

    def advised() -> None:
        image = ps.Image(allow_damaged=True)
        (batch,) = ps.Loader(ps.open("a.parquet"), 1, decode={"image": image})
        assert batch["image"][0, :8].any()

    hint = (
        "ps.Image(allow_damaged=True), to use the intact part of a damaged JPEG; or "
        'open(..., damage="skip"), to skip damaged records'
    )
    decode = {"image": ps.Image()}
    return Case(lambda: list(ps.Loader(ps.open("a.parquet"), 1, decode=decode)), advised, hint)


def upright_mask_of_a_turned_picture() -> Case:
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6  # the picture is shown turned to the right
    Image.new("L", (9, 3)).save(file, "PNG", exif=exif)
    mask = ps.encode_images(np.ones((1, 9, 3, 1), np.uint8), "png")
    ps.write({"image": [file.getvalue()], "mask": mask}, "a.parquet")

    def loaded(**options: Any) -> Any:
        spec = ps.Image(same={"mask": "nearest"}, **options)
        return next(iter(ps.Loader(ps.open("a.parquet"), 1, decode={"image": spec})))

    def advised() -> None:
        batch = loaded(exif=True)
        assert batch["image"].shape[:3] == batch["mask"].shape == (1, 9, 3)

    return Case(loaded, advised)


def null_picture_of_a_loader() -> Case:
    ps.write({"image": pa.array([png(1), None, png(3)])}, "a.parquet")

    def greys(ds: ps.Dataset) -> list[int]:
        (batch,) = ps.Loader(ds, 3, decode={"image": ps.Image()})
        return [int(pixels[0, 0, 0]) for pixels in batch["image"]]

    def advised() -> None:
        assert greys(ps.open("a.parquet").filter("`image` is not null")) == [1, 3]

    return Case(lambda: greys(ps.open("a.parquet")), advised)


def odd_member() -> Case:
    with tarfile.open("a.tar", "w") as file:
        for name, data in (("0.cls", b"7"), ("1.cls", b"seven")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))

    def classes(**options: Any) -> list[Any]:
        return [record["cls"] for record in rows("a.tar", **options)]

    def advised() -> None:
        assert classes(damage="skip") == [7]
        assert classes(decode=False) == [b"7", b"seven"]

    return Case(classes, advised)


def text_that_is_none() -> Case:
    texts = pa.StringArray.from_buffers(
        2, pa.py_buffer(struct.pack("<3i", 0, 1, 2)), pa.py_buffer(b"a\xff")
    )
    with pa.OSFile("a.arrow", "wb") as file:
        batch = pa.record_batch([texts], ["a"])
        with pa.ipc.new_file(file, batch.schema) as writer:
            writer.write(batch)
    return twice(rows, "a.arrow", damage="skip", gives=[{"a": "a"}])


def checksums_left_out() -> Case:
    data = bytearray(frames.file_of([b"one", b"two"]))
    for at in (15, 34):
        data[at : at + 4] = bytes(4)  # damage the payload
    Path("a.tfrecord").write_bytes(data)
    gives = [{"record": b"one"}, {"record": b"two"}]

    def read(**options: Any) -> list[Any]:
        return rows("a.tfrecord", raw=True, index="never", **options)

    return twice(read, checksums="headers", gives=gives)


def checksums_of_another_writer() -> Case:
    Path("a").write_bytes((struct.pack("<Q", 1) + bytes(4) + b"x" + bytes(4)) * 3)

    def read(**options: Any) -> list[Any]:
        return rows("a", format="tfrecord", raw=True, index="never", **options)

    return twice(read, checksums="none", gives=[{"record": b"x"}] * 3)


def other_message() -> Case:
    good = Example()
    good.features.feature["a"].int64_list.value.append(1)
    payloads = [good.SerializeToString(), b"\xff\xff"]
    ps.write(payloads, "a.tfrecord", index=False)

    def advised() -> None:
        assert rows("a.tfrecord", raw=True) == [{"record": payload} for payload in payloads]

    return Case(lambda: rows("a.tfrecord", schema=Example), advised)


def message_of(kind: int) -> Any:
    """A message class of one field, as protobuf's compiler would make it."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{kind}.proto", package="hints", syntax="proto2"
    )
    optional = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    file.message_type.add(name="M").field.add(name="s", number=1, type=kind, label=optional)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("hints.M"))


def message_of_another_type() -> Case:
    kinds = descriptor_pb2.FieldDescriptorProto
    text, data = message_of(kinds.TYPE_STRING), message_of(kinds.TYPE_BYTES)
    payloads = [b"\x0a\x02ok", b"\x0a\x01\xff"]
    ps.write(payloads, "a.tfrecord", index=False)

    def advised() -> None:
        assert rows("a.tfrecord", schema=data) == [{"s": b"ok"}, {"s": b"\xff"}]
        assert rows("a.tfrecord", raw=True) == [{"record": payload} for payload in payloads]

    return Case(lambda: rows("a.tfrecord", schema=text), advised)


def unknown_file_of_a_list() -> Case:
    Path("d").mkdir()
    for n in range(2):
        ps.write({"a": [n]}, f"d/p-{n}.tfrecord", index=False)
    Path("d/q.parquet").write_bytes(b"<html>an error page</html>")
    hint = "without this file: 'd/*.tfrecord'"

    def advised() -> None:
        assert rows("d/*.tfrecord") == [{"a": 0}, {"a": 1}]

    return Case(lambda: rows("d/*"), advised, hint)


# -- types ----------------------------------------------------------------------------------------


def unheld_by_arrays(column: pa.Array, advice: str, follow: Callable[[pa.Table], None]) -> Case:
    table = pa.table({"a": column, "b": [1, 2]})

    def advised() -> None:
        follow(table)
        for path in ("b.parquet", "b.arrow"):
            ps.write(table, path)
            assert pa.table(ps.open(path)).to_pylist() == table.to_pylist()

    hint = f"{advice}, or write Parquet or Arrow"
    return Case(lambda: ps.write(table, "a.npy"), advised, hint)


def cast_to(type_: pa.DataType) -> Callable[[pa.Table], None]:
    def follow(table: pa.Table) -> None:
        equal_in(table.set_column(0, "a", table.column("a").cast(type_)), "c.npy")

    return follow


def zoned_times() -> Case:
    times = pa.array([1, 2], pa.timestamp("us", "UTC"))
    plain = cast_to(pa.timestamp("us"))
    return unheld_by_arrays(times, "cast it to a timestamp without a time zone", plain)


def labels_of_numbers() -> Case:
    numbers = pa.array([7, 8]).dictionary_encode()
    return unheld_by_arrays(numbers, "cast it to its value type", cast_to(pa.int64()))


def texts() -> Case:
    def follow(table: pa.Table) -> None:
        ps.write(table, "c.npy", text_length=3)
        assert rows("c.npy") == table.to_pylist()

    advice = "set text_length=, the maximum characters or bytes of a value"
    return unheld_by_arrays(pa.array(["one", "two"]), advice, follow)


def times_of_day() -> Case:
    def follow(table: pa.Table) -> None:
        cast_to(pa.int32())(table)
        left_out(table, "a", "d.npz")

    column = pa.array([1, 2], pa.time32("s"))
    return unheld_by_arrays(column, "cast it, leave it out (columns=)", follow)


def nul_in_a_text() -> Case:
    table = pa.table({"a": ["p\0q"]})

    def advised() -> None:
        ps.write(table.cast(pa.schema([("a", pa.binary())])), "b.h5")
        assert pa.table(ps.open("b.h5")).column("a").to_pylist() == [b"p\0q"]

    return Case(lambda: ps.write(table, "a.h5"), advised)


def exact_float64() -> Case:
    def advised() -> None:
        ps.write({"a": [0.1]}, "a.tfrecord")
        assert rows("a.tfrecord") == [{"a": float(np.float32(0.1))}]
        ps.write({"a": np.float32([0.1])}, "b.tfrecord", exact=True)
        assert rows("b.tfrecord") == rows("a.tfrecord")

    return Case(lambda: ps.write({"a": [0.1]}, "c.tfrecord", exact=True), advised)


def beyond_float32() -> Case:
    def advised() -> None:
        ps.write({"a": [1e300 / 1e290]}, "a.tfrecord")
        assert rows("a.tfrecord") == [{"a": float(np.float32(1e10))}]
        ps.write({"a": [struct.pack("<d", 1e300)]}, "b.tfrecord")
        assert struct.unpack("<d", rows("b.tfrecord")[0]["a"]) == (1e300,)

    return Case(lambda: ps.write({"a": [1e300]}, "c.tfrecord"), advised)


def exact_labels() -> Case:
    labels = pa.array(["p", "q"]).dictionary_encode()
    data = {"label": labels, "image": [png(1), png(2)]}

    def advised() -> None:
        ps.write(data, "a.rec")
        assert [record["label"] for record in rows("a.rec", index="never")] == [0, 1]

    return Case(lambda: ps.write(data, "b.rec", exact=True), advised)


CASES: Cases = {
    "'ps.Image(exif=True) turns the picture upright as its EXIF says; then the two fit'": (
        upright_mask_of_a_turned_picture
    ),
    "'open(..., damage=\"skip\"), or penstock repair --decode leaves out the records whose pictures are damaged'": (
        half_of_a_picture_to_encode
    ),
    "'leave masks out of the columns, or write another format, such as Parquet'": (
        masks_where_pictures_are_colours
    ),
    "f\"{raise_limit('record_bytes', page.plain_bytes)}, or read other columns\"": large_page,
    "'the path without file://'": as_an_address,
    "raise_limit('record_bytes', size)": large_image,
    "raise_limit('record_bytes', error.found)": large_frame,
    "\"open(..., limits={'nesting': ...}), or raw=True\"": deep_values,
    "f'limits=penstock.Limits({name}={fault.found})'": many_pixels,
    "hints.get(fault.kind) if can_help else None": (half_of_a_picture),
    "f'{also}open(..., damage=\"skip\"), to skip damaged records'": (
        broken_picture_of_a_loader,
        half_of_a_picture_in_a_loader,
    ),
    "'open(..., damage=\"skip\") leaves such records out, open(..., decode=False) gives fields as bytes'": odd_member,
    "f'ds.filter(\"`{error.field}` is not null\"), to leave out records without an image'": null_picture_of_a_loader,
    "'open(..., damage=\"skip\") leaves such records out'": text_that_is_none,
    "'open(..., checksums=\"headers\"), if its writer left this checksum out'": checksums_left_out,
    "'open(..., checksums=\"none\")'": checksums_of_another_writer,
    "'open(..., raw=True) for the bytes as they are'": other_message,
    "'is it this message? open(..., raw=True) for the bytes as they are'": message_of_another_type,
    "f'without this file: {found}'": unknown_file_of_a_list,
    "f'{_advice(type_, has_length=text_length is not None)}, or write Parquet or Arrow'": (
        zoned_times,
        labels_of_numbers,
        texts,
        times_of_day,
    ),
    "'cast the field to binary, which is kept as bytes'": nul_in_a_text,
    "'leave out exact=True to store the nearest float32, or cast the column yourself'": (
        exact_float64
    ),
    "'scale the values, or store them as bytes'": beyond_float32,
    "'leave out exact=True, which refuses this'": exact_labels,
}
