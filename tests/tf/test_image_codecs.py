"""Images decoded and encoded as TensorFlow does: the same options, the same bytes."""

from __future__ import annotations

import io
import json
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import penstock.tf as ps
from penstock.tf import codecs
from penstock.tf.errors import InvalidArgumentError

tf: Any = pytest.importorskip("tensorflow")

DAMAGED = ("crashtest", "fuzz")


def alike(ours: Callable[[], Any], theirs: Callable[[], Any]) -> str:
    """Both fail with the same kind of error, or both give the same array."""
    try:
        expected = theirs().numpy()
    except tf.errors.InvalidArgumentError:
        with pytest.raises(InvalidArgumentError):
            ours()
        return "refused"
    found = ours()
    assert isinstance(found, ps.Tensor)
    assert found.dtype == expected.dtype
    assert tuple(found.shape) == expected.shape
    np.testing.assert_array_equal(found, expected)
    return "equal"


def files(folder: Path, begin: bytes) -> list[Path]:
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in found if path.read_bytes().startswith(begin)]


def picture(rng: np.random.Generator, *, grey: bool = False) -> np.ndarray:
    height, width = (int(n) for n in rng.integers(1, 70, 2))
    ramp = np.add.outer(np.arange(height) * 5, np.arange(width) * 3)[..., None]
    noise = rng.integers(0, 80, (height, width, 1 if grey else 3))
    return (ramp * rng.integers(1, 3, 1 if grey else 3) + noise).astype(np.uint8)


def jpeg_options(rng: random.Random) -> dict[str, Any]:
    return {
        "channels": rng.choice((0, 1, 3)),
        "ratio": rng.choice((1, 1, 2, 4, 8)),
        "fancy_upscaling": rng.random() < 0.7,
        "dct_method": rng.choice(("", "INTEGER_FAST", "INTEGER_ACCURATE")),
    }


def test_every_jpeg_of_the_corpus_decodes_to_tensorflows_bytes(corpus: Path) -> None:
    rng = random.Random(1)
    equal = 0
    for path in files(corpus / "jpeg", b"\xff\xd8\xff"):
        if any(part in DAMAGED for part in path.parts) or "lossless" in path.name:
            # The next test covers damage; TensorFlow's version does not support lossless JPEG.
            continue
        data = path.read_bytes()
        for how in ({}, {"channels": 3}, jpeg_options(rng), jpeg_options(rng)):
            found = alike(
                lambda d=data, h=how: codecs.decode_jpeg(d, **h),
                lambda d=data, h=how: tf.io.decode_jpeg(d, **h),
            )
            equal += found == "equal"
    assert equal > 100


def test_damaged_jpegs_are_refused_if_tensorflow_refuses_them(corpus: Path) -> None:
    rng = random.Random(2)
    for path in files(corpus / "jpeg", b"\xff\xd8\xff"):
        data = path.read_bytes()
        if len(data) > 60_000 or "lossless" in path.name:
            continue
        hurt = [data[: rng.randrange(3, len(data))]]
        if any(part in DAMAGED for part in path.parts):
            hurt.append(data)
        for one in hurt:
            if b"\xff\xc2" in one and one is data:
                # The two versions of libjpeg-turbo fill in missing data of several scans
                # differently.
                continue
            alike(lambda d=one: codecs.decode_jpeg(d), lambda d=one: tf.io.decode_jpeg(d))


def test_cut_jpegs_give_the_rows_that_tensorflow_gives() -> None:
    rng, numbers = np.random.default_rng(3), random.Random(3)
    outcomes = []
    for _ in range(60):
        data = tf.io.encode_jpeg(
            picture(rng), chroma_downsampling=bool(numbers.randrange(2))
        ).numpy()
        # If the header is truncated, TensorFlow may loop for ever; after the header it does not.
        cut = data[: numbers.randrange(data.find(b"\xff\xda") + 14, len(data) + 1)]
        if cut.endswith(b"\xff"):
            continue  # it may also loop if a marker is truncated
        for how in (
            {"try_recover_truncated": True},
            {"acceptable_fraction": numbers.random()},
            {"acceptable_fraction": 0.0, "channels": 1},
            {},
        ):
            found = alike(
                lambda d=cut, h=how: codecs.decode_jpeg(d, **h),
                lambda d=cut, h=how: tf.io.decode_jpeg(d, **h),
            )
            outcomes.append(found)
    assert set(outcomes) == {"equal", "refused"}


def test_a_jpeg_cut_in_its_header_is_refused_though_recovery_was_asked_for() -> None:
    data = codecs.encode_jpeg(np.zeros([9, 9, 3], np.uint8)).numpy()
    for end in range(3, data.find(b"\xff\xda")):
        with pytest.raises(InvalidArgumentError):
            codecs.decode_jpeg(data[:end], try_recover_truncated=True)


def test_parts_of_jpegs_equal_tensorflows() -> None:
    rng, numbers = np.random.default_rng(4), random.Random(4)
    for _ in range(80):
        data = tf.io.encode_jpeg(
            picture(rng), chroma_downsampling=bool(numbers.randrange(2))
        ).numpy()
        how = jpeg_options(numbers)
        height, width, _ = codecs.decode_jpeg(data, **how).shape
        top, left = numbers.randrange(height), numbers.randrange(width)
        window = [top, left, numbers.randint(1, height - top + 1), numbers.randint(1, width - left)]
        alike(
            lambda d=data, w=window, h=how: codecs.decode_and_crop_jpeg(d, w, **h),
            lambda d=data, w=window, h=how: tf.io.decode_and_crop_jpeg(d, w, **h),
        )


def test_jpegs_are_written_byte_for_byte() -> None:
    rng, numbers = np.random.default_rng(5), random.Random(5)
    for _ in range(60):
        image = picture(rng, grey=numbers.random() < 0.3)
        how: dict[str, Any] = {
            "quality": numbers.randint(0, 100),
            "progressive": numbers.random() < 0.3,
            "optimize_size": numbers.random() < 0.3,
            "chroma_downsampling": numbers.random() < 0.5,
            "density_unit": numbers.choice(("in", "cm")),
            "x_density": numbers.randrange(1, 600),
            "xmp_metadata": numbers.choice(("", "<x/>")),
        }
        ours = codecs.encode_jpeg(image, **how)
        assert ours.numpy() == tf.io.encode_jpeg(image, **how).numpy()


def test_pngs_read_back_in_both_directions() -> None:
    rng = np.random.default_rng(6)
    for dtype in (np.uint8, np.uint16):
        for channels in (1, 2, 3, 4):
            batch = rng.integers(0, 256, (2, 5, 7, channels), dtype) * dtype(3)
            for level in (-1, 0, 5, 9):
                made = codecs.encode_png(batch, compression=level)
                assert made.shape.as_list() == [2]
                for image, data in zip(batch, made.tolist(), strict=True):
                    np.testing.assert_array_equal(tf.io.decode_png(data, dtype=dtype), image)
                    np.testing.assert_array_equal(codecs.decode_png(data, dtype=dtype), image)


def made_png(rng: np.random.Generator, numbers: random.Random) -> bytes:
    """A PNG of any colour type and depth, with a palette and transparency if its type allows them."""
    colour, depth = numbers.choice(
        [
            *((0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16)),
            *((3, 1), (3, 2), (3, 4), (3, 8), (4, 8), (4, 16), (6, 8), (6, 16)),
        ]
    )
    width, height = numbers.randrange(1, 20), numbers.randrange(1, 10)
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    row = (width * depth * samples + 7) // 8
    rows = b"".join(b"\0" + rng.integers(0, 256, row, np.uint8).tobytes() for _ in range(height))

    def chunk(name: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))]
    if numbers.random() < 0.2 and depth < 16:
        parts.append(chunk(b"gAMA", struct.pack(">I", numbers.choice((45455, 100000, 30000)))))
    if colour == 3:
        parts.append(chunk(b"PLTE", rng.integers(0, 256, 3 << depth, np.uint8).tobytes()))
    if colour in (0, 2, 3) and numbers.random() < 0.5:
        size = {0: 2, 2: 6, 3: numbers.randint(1, 1 << depth)}[colour]
        parts.append(chunk(b"tRNS", rng.integers(0, 256, size, np.uint8).tobytes()))
    parts += [chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def test_pngs_of_every_kind_decode_to_tensorflows_values() -> None:
    rng, numbers = np.random.default_rng(7), random.Random(7)
    outcomes = []
    for number in range(400):
        data = made_png(rng, numbers)
        if number % 4 == 0:
            at = numbers.randrange(8, len(data))
            data = data[:at] if number % 8 else data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        channels, dtype = numbers.choice((0, 1, 3, 4)), numbers.choice(("uint8", "uint16"))
        found = alike(
            lambda d=data, c=channels, t=dtype: codecs.decode_png(d, c, t),
            lambda d=data, c=channels, t=dtype: tf.io.decode_png(d, c, t),
        )
        outcomes.append(found)
    assert outcomes.count("equal") > 250


def test_every_png_of_the_corpus_decodes_to_tensorflows_values(corpus: Path) -> None:
    equal = 0
    for path in files(corpus / "png", b"\x89PNG\r\n\x1a\n"):
        data = path.read_bytes()
        for channels in (0, 1, 3, 4):
            found = alike(
                lambda d=data, c=channels: codecs.decode_png(d, c),
                lambda d=data, c=channels: tf.io.decode_png(d, c),
            )
            equal += found == "equal"
    assert equal > 400


def gif(rng: np.random.Generator, numbers: random.Random) -> bytes:
    height, width = numbers.randrange(1, 40), numbers.randrange(1, 40)
    frames = [
        Image.fromarray(rng.integers(0, numbers.choice((4, 200)), (height, width), np.uint8))
        for _ in range(numbers.choice((1, 1, 2, 4)))
    ]
    file = io.BytesIO()
    more = {"save_all": True, "append_images": frames[1:]} if len(frames) > 1 else {}
    frames[0].save(
        file, "GIF", interlace=numbers.randrange(2), disposal=numbers.randrange(3), **more
    )
    return file.getvalue()


def bmp(rng: np.random.Generator, numbers: random.Random) -> bytes:
    size = numbers.randrange(1, 40), numbers.randrange(1, 40)
    image = Image.fromarray(rng.integers(0, 256, (*size, 4), np.uint8))
    file = io.BytesIO()
    image.convert(numbers.choice(("L", "RGB", "RGBA", "1", "P"))).save(file, "BMP")
    data = bytearray(file.getvalue())
    if numbers.random() < 0.3:
        data[numbers.randrange(10, 30)] ^= 1 << numbers.randrange(8)
    return bytes(data)


def test_gifs_and_bmps_decode_to_tensorflows_values() -> None:
    rng, numbers = np.random.default_rng(8), random.Random(8)
    outcomes = []
    for number in range(200):
        data = (gif, bmp)[number % 2](rng, numbers)
        how = {
            "expand_animations": bool(numbers.randrange(2)),
            "channels": numbers.choice((0, 3, 1, 4)),
        }
        for dtype in ("uint8", "uint16", "float32"):
            found = alike(
                lambda d=data, h=how, t=dtype: codecs.decode_image(d, dtype=t, **h),
                lambda d=data, h=how, t=dtype: tf.io.decode_image(d, dtype=t, **h),
            )
            outcomes.append(found)
    assert outcomes.count("equal") > 200


def test_operations_take_each_others_formats_as_in_tensorflow() -> None:
    rng = np.random.default_rng(9)
    image = Image.fromarray(rng.integers(0, 256, (4, 5, 3), np.uint8))
    samples = {"junk": b"abc", "none": b""}
    for name in ("JPEG", "PNG", "GIF", "BMP"):
        file = io.BytesIO()
        image.save(file, name)
        samples[name] = file.getvalue()
    file = io.BytesIO()
    image.save(file, "WEBP", lossless=True)
    samples["WEBP"] = file.getvalue()
    file = io.BytesIO()
    image.save(file, "GIF", save_all=True, append_images=[image.rotate(90)])
    samples["moving"] = file.getvalue()
    for data in samples.values():
        for channels in (0, 1, 2, 3, 4):
            for name in ("decode_jpeg", "decode_png", "decode_image", "decode_bmp"):
                if data is samples["WEBP"] and name == "decode_bmp":
                    continue  # TensorFlow decodes it
                alike(
                    lambda n=name, d=data, c=channels: getattr(codecs, n)(d, c),
                    lambda n=name, d=data, c=channels: getattr(tf.io, n)(d, c),
                )
            if data is samples["WEBP"]:
                continue
            alike(
                lambda d=data, c=channels: codecs.decode_and_crop_jpeg(d, [0, 0, 2, 2], c),
                lambda d=data, c=channels: tf.io.decode_and_crop_jpeg(d, [0, 0, 2, 2], c),
            )
        for dtype in ("int32", "float16", "float64", "uint16", "float32"):
            alike(
                lambda d=data, t=dtype: codecs.decode_image(d, dtype=t),
                lambda d=data, t=dtype: tf.io.decode_image(d, dtype=t),
            )
        for name in ("decode_gif", "extract_jpeg_shape", "is_jpeg"):
            alike(
                lambda n=name, d=data: getattr(codecs, n)(d),
                lambda n=name, d=data: getattr(tf.io, n)(d),
            )


def test_invalid_options_are_refused_as_in_tensorflow() -> None:
    image = np.zeros([4, 4, 3], np.uint8)
    data = codecs.encode_jpeg(image).numpy()
    for name, arguments, how in (
        ("decode_jpeg", (data,), {"ratio": 3}),
        ("decode_jpeg", (data,), {"dct_method": "X"}),
        ("decode_jpeg", ([data],), {}),
        ("decode_and_crop_jpeg", (data, [0, 0, 5, 5]), {}),
        ("decode_and_crop_jpeg", (data, [0, 0, 0, 1]), {}),
        ("decode_and_crop_jpeg", (data, [0, 0, 1]), {}),
        ("encode_jpeg", (image[..., :2],), {}),
        ("encode_jpeg", (image[0],), {}),
        ("encode_jpeg", (image,), {"quality": 101}),
        ("encode_jpeg", (image,), {"format": "grayscale"}),
        ("encode_jpeg", (image,), {"density_unit": "m"}),
        ("encode_png", (image[0],), {}),
        ("encode_png", (image,), {"compression": 10}),
        ("encode_png", (np.zeros([2, 2, 5], np.uint8),), {}),
    ):
        told = alike(
            lambda n=name, a=arguments, h=how: getattr(codecs, n)(*a, **h),
            lambda n=name, a=arguments, h=how: getattr(tf.io, n)(*a, **h),
        )
        assert told == "refused", (name, how)
    with pytest.raises(InvalidArgumentError, match="image_pixels"):
        codecs.decode_jpeg(vast())


def vast() -> bytes:
    """A JPEG of a few bytes that claims 65,000 pixels per side."""
    data = bytearray(codecs.encode_jpeg(np.zeros([8, 8, 3], np.uint8)).numpy())
    at = data.find(b"\xff\xc0") + 5
    data[at : at + 4] = b"\xfd\xe8\xfd\xe8"
    return bytes(data)


def test_the_golden_files_decode_as_expected(golden: Path) -> None:
    def case(name: str) -> tuple[bytes, dict[str, Any]]:
        data = (golden / "tf_data" / name).read_bytes()
        return data, json.loads((golden / "tf_data" / f"{name}.expected.json").read_text())

    for name in ("rgba.png", "palette.png"):
        data, expected = case(name)
        for channels, values in expected.items():
            np.testing.assert_array_equal(codecs.decode_png(data, int(channels)), values)
    data, expected = case("gray16.png")
    for dtype, values in expected.items():
        np.testing.assert_array_equal(codecs.decode_png(data, dtype=dtype)[..., 0], values)
    data, expected = case("photo420.jpg")
    slow: dict[str, Any] = {"dct_method": "INTEGER_ACCURATE"}
    for name, how in {
        "decode_jpeg_default": {},
        "decode_jpeg_INTEGER_ACCURATE": slow,
        "decode_jpeg_INTEGER_ACCURATE_no_fancy": {**slow, "fancy_upscaling": False},
        "decode_jpeg_channels1_INTEGER_ACCURATE": {**slow, "channels": 1},
        "ratio2_INTEGER_ACCURATE": {**slow, "ratio": 2},
        "ratio8": {"ratio": 8},
    }.items():
        found = codecs.decode_jpeg(data, **how)
        np.testing.assert_array_equal(found, np.reshape(expected[name], found.shape), name)
