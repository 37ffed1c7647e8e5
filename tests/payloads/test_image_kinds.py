"""BMP, GIF and TIFF; images in Hugging Face's structs; images in rows padded with zeros."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import penstock as ps
from penstock.payloads.images import image_sizes, reencode


def picture(height: int = 20, width: int = 33) -> np.ndarray:
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows * 9, columns * 7, rows + columns * 3], -1).astype(np.uint8)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


COLOUR = Image.fromarray(picture())
FILES: dict[str, tuple[str, Image.Image, dict[str, Any]]] = {
    "bmp of 24 bits": ("BMP", COLOUR, {}),
    "bmp of grey": ("BMP", COLOUR.convert("L"), {}),
    "bmp with a palette": ("BMP", COLOUR.quantize(16), {}),
    "bmp of 1 bit": ("BMP", COLOUR.convert("1"), {}),
    "gif": ("GIF", COLOUR.quantize(200), {}),
    "gif, interlaced": ("GIF", COLOUR.quantize(200), {"interlace": 1}),
    "tiff": ("TIFF", COLOUR, {}),
    "tiff of grey": ("TIFF", COLOUR.convert("L"), {}),
    "tiff by LZW": ("TIFF", COLOUR, {"compression": "tiff_lzw"}),
    "tiff by deflate": ("TIFF", COLOUR, {"compression": "tiff_adobe_deflate"}),
    "tiff by packbits": ("TIFF", COLOUR, {"compression": "packbits"}),
    "tiff with alpha": ("TIFF", COLOUR.convert("RGBA"), {}),
}


@pytest.mark.parametrize("name", FILES)
def test_bmp_gif_and_tiff_are_decoded_as_by_pillow(name: str) -> None:
    kind, image, options = FILES[name]
    data = saved(image, kind, **options)
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(ps.decode_images([data])[0], expected)
    size = image_sizes([data])[0].as_py()
    assert (size["codec"], size["width"], size["height"]) == (kind.lower(), 33, 20)
    stored = ps.decode_images([data], mode="stored")
    assert stored.shape == (1, 20, 33, size["channels"])
    small = ps.decode_images([data], ps.Image(8))[0]
    np.testing.assert_array_equal(small, ps.decode_images(expected[None], ps.Image(8))[0])


def test_the_image_of_a_gif_is_its_first_frame() -> None:
    frames = [COLOUR.quantize(64), Image.new("P", COLOUR.size, 3)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    np.testing.assert_array_equal(ps.decode_images([data])[0], expected)


def test_a_tiff_of_16_bits_keeps_them() -> None:
    values = (np.arange(660).reshape(20, 33) * 99).astype(np.uint16)
    data = saved(Image.fromarray(values), "TIFF")
    found = ps.decode_images([data], ps.Image(dtype="uint16"))[0]
    np.testing.assert_array_equal(found, np.dstack([values] * 3))
    np.testing.assert_array_equal(ps.decode_images([data], mode="grey")[0], values >> 8)


def test_tiffs_of_rare_kinds_are_refused_as_unsupported() -> None:
    for image in (COLOUR.quantize(16), COLOUR.convert("F"), COLOUR.convert("YCbCr")):
        with pytest.raises(ps.UnsupportedError, match="TIFF of an unknown kind"):
            ps.decode_images([saved(image, "TIFF")])


@pytest.mark.parametrize("name", FILES)
def test_cut_and_changed_files_are_faults_or_pictures(name: str) -> None:
    kind, image, options = FILES[name]
    data = saved(image, kind, **options)
    rng = np.random.default_rng(0)
    for cut in range(0, len(data), max(len(data) // 40, 1)):
        try_to_decode(data[:cut])
    for _ in range(60):
        changed = bytearray(data)
        for place in rng.integers(0, len(data), 3):
            changed[place] = rng.integers(256)
        try_to_decode(bytes(changed))


def try_to_decode(data: bytes) -> None:
    try:
        ps.decode_images([data], limits={"image_pixels": 1 << 16})
    except ps.PenstockError:
        pass


def test_a_size_that_is_claimed_is_not_believed() -> None:
    data = bytearray(saved(COLOUR, "BMP"))
    data[18:26] = (60_000).to_bytes(4, "little") * 2
    with pytest.raises(ps.LimitError, match="60000 x 60000"):
        ps.decode_images([bytes(data)])


def test_kinds_that_are_not_written_are_encoded_as_others() -> None:
    data = saved(COLOUR, "BMP")
    assert reencode([data])[0].as_py() == data
    made = reencode([data], "png", max_side=10)
    assert image_sizes(made)[0].as_py()["codec"] == "png"
    with pytest.raises(ps.UnsupportedError, match="BMP is only read"):
        reencode([data], max_side=10)
    with pytest.raises(ValueError, match="unknown codec"):
        ps.encode_images(picture()[None], "bmp")


def test_folders_and_tars_hold_images_of_these_kinds(tmp_path: Path) -> None:
    folder = tmp_path / "pictures" / "cat"
    folder.mkdir(parents=True)
    few = COLOUR.quantize(16)
    for image, kind, ending in ((few, "BMP", "bmp"), (few, "GIF", "gif"), (COLOUR, "TIFF", "tif")):
        image.save(folder / f"a.{ending}", kind)
    ds = ps.open(tmp_path / "pictures")
    assert len(ds) == 3
    found = ps.decode_images(ds.take([0, 1, 2]).column("image"))
    for one, image in zip(found, (few, few, COLOUR), strict=True):
        np.testing.assert_array_equal(one, np.asarray(image.convert("RGB")))
    ps.convert(ds, tmp_path / "again", format="imagefolder")
    names = sorted(path.suffix for path in (tmp_path / "again").rglob("*.*") if "cat" in str(path))
    assert names == [".bmp", ".gif", ".tif"]
    tar = tmp_path / "a.tar"
    with tarfile.open(tar, "w") as file:
        file.add(folder / "a.tif", "a.tif")
    column = ps.open(tar).take([0]).column("tif")
    assert column.type.codec == "tiff"
    np.testing.assert_array_equal(ps.decode_images(column)[0], picture())


# Hugging Face's structs


def test_structs_of_bytes_and_path_are_images(tmp_path: Path) -> None:
    pixels = np.stack([picture(), picture()[::-1]])
    data = [one.as_py() for one in ps.encode_images(pixels, "png")]
    structs = [{"bytes": one, "path": None} for one in data]
    type_ = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    array = pa.array([*structs, None], type_)
    np.testing.assert_array_equal(ps.decode_images(array[:2]), pixels)
    np.testing.assert_array_equal(ps.decode_images(array[1:2])[0], pixels[1])
    assert ps.decode_images(array)[2] is None
    ps.write({"image": array[:2], "mask": array[:2]}, tmp_path / "d.parquet")
    spec = ps.Image(16, crop="random", same={"mask": "nearest"})
    batch = next(iter(ps.Loader(ps.open(tmp_path / "d.parquet"), 2, decode={"image": spec})))
    assert batch["image"].shape == batch["mask"].shape == (2, 16, 16, 3)


def test_a_path_without_bytes_is_not_opened(tmp_path: Path) -> None:
    COLOUR.save(tmp_path / "a.png")
    type_ = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    data = saved(COLOUR, "PNG")
    structs = [{"bytes": data, "path": "a.png"}, {"bytes": None, "path": str(tmp_path / "a.png")}]
    array = pa.array(structs, type_)
    with pytest.raises(ps.SchemaError, match="only the path") as caught:
        ps.decode_images(array)
    assert caught.value.record == 1
    ps.write({"image": array}, tmp_path / "d.parquet")
    loader = ps.Loader(ps.open(tmp_path / "d.parquet"), 2, decode={"image": ps.Image(8)})
    with pytest.raises(ps.SchemaError, match="only the path") as caught:
        next(iter(loader))
    assert caught.value.file == str(tmp_path / "d.parquet")


def test_files_of_hugging_face_datasets_are_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    images = [COLOUR, COLOUR.rotate(90, expand=True)]
    features = datasets.Features({"image": datasets.Image()})
    theirs = datasets.Dataset.from_dict({"image": images}, features=features)
    theirs.to_parquet(tmp_path / "d.parquet")
    batch = next(iter(ps.Loader(ps.open(tmp_path / "d.parquet"), 2, decode={"image": ps.Image()})))
    for found, expected in zip(batch["image"], images, strict=True):
        np.testing.assert_array_equal(found, np.asarray(expected))


# Rows padded with zeros


@pytest.mark.parametrize("codec", ["jpeg", "png", "webp", "ppm"])
def test_files_may_be_rows_filled_up_with_zeros(codec: str, tmp_path: Path) -> None:
    pixels = [picture(40, 50), picture(30, 20), picture(7, 9)]
    files = [one.as_py() for one in ps.encode_images(pixels, codec)]
    rows = np.zeros((3, max(map(len, files)) + 50), np.uint8)
    for row, file in zip(rows, files, strict=True):
        row[: len(file)] = np.frombuffer(file, np.uint8)
    spec = ps.Image(16, crop="random", flip=True)
    expected = ps.decode_images(files, spec)
    arrays = [
        rows,
        pa.array([row.tobytes() for row in rows]),
        pa.array(rows.tolist(), pa.list_(pa.uint8())),
        pa.array(rows.tolist(), pa.large_list(pa.uint8())),
        pa.array(rows.tolist(), pa.list_(pa.uint8(), rows.shape[1])),
        pa.FixedShapeTensorArray.from_numpy_ndarray(rows),
    ]
    for array in arrays:
        np.testing.assert_array_equal(ps.decode_images(array, spec), expected)
        np.testing.assert_array_equal(
            ps.decode_images(array[1:], mode="rgb")[0], ps.decode_images(files[1:])[0]
        )
    ps.write({"image": rows}, tmp_path / "d.npz")
    batch = next(iter(ps.Loader(ps.open(tmp_path / "d.npz"), 3, decode={"image": spec})))
    assert batch["image"].shape == (3, 16, 16, 3)


def test_a_row_of_zeros_is_a_damaged_image() -> None:
    with pytest.raises(ps.FormatError) as caught:
        ps.decode_images(np.zeros((2, 30), np.uint8))
    assert caught.value.record == 0
