"""Images: images that Pillow decodes must give the same pixels; damaged images are errors.

Pillow contains the same libjpeg-turbo and libwebp, in different versions. Pixels are compared exactly, also those of
JPEG, whose accurate integer transform has not changed since 2010.
"""

from __future__ import annotations

import io
import re
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import penstock as ps
from penstock.columns.types import ImageType, is_image
from penstock.payloads.images import image_sizes, reencode
from reading import SHARED

CORPUS = SHARED / "corpus"

# Images that Pillow decodes and penstock refuses: JPEGs about which the decoder warns, and
# animations with wrong numbers whose first frame is valid.
WARNED = {
    "jpeg/jpeg-decoder/crashtest/dc-predictor-overflow.jpg",
    "jpeg/jpeg-decoder/crashtest/imagetestsuite-4838ece0d3900220d33528ee027289bc.jpg",
    "jpeg/jpeg-decoder/crashtest/imagetestsuite-8e5e74dbf9b68a322fbb9512db837329.jpg",
    "jpeg/jpeg-decoder/reftest/extraneous-data.jpg",
    "jpeg/pillow-tests/jpeg_ff00_header.jpg",
    "jpeg/pillow-tests/photoshop-200dpi-broken.jpg",
    "jpeg/pillow-tests/truncated_app14.jpg",
    "jpeg/zune-image/fuzz/18db4bde2f3af5a6716739fe62ca87e6150fbdc6",
    "jpeg/zune-image/fuzz/35bbd9360bbed2401db492c2f54f24f5a6f7f095",
    "jpeg/zune-image/fuzz/f8c3c5575143fb6ab57e20da19eb5a5d99a843b6",
}
MISNUMBERED = {
    "png/pillow-tests/apng-chunk_repeat_fctl.png",
    "png/pillow-tests/apng-sequence_fdat_fctl.png",
    "png/pillow-tests/apng-sequence_reorder.png",
    "png/pillow-tests/apng-sequence_repeat.png",
    "png/pillow-tests/apng-sequence_start.png",
}


def pillow(data: bytes) -> np.ndarray | None:
    """The image as RGB, or None if Pillow refuses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = Image.open(io.BytesIO(data))
            if image.mode.startswith("I;16"):
                return np.stack([(np.asarray(image) >> 8).astype(np.uint8)] * 3, -1)
            return np.asarray(image.convert("RGB"))
        except Exception:
            return None


def decoded(data: bytes, **options: Any) -> np.ndarray:
    return ps.decode_images([data], **options)[0]


def files(folder: str) -> list[Path]:
    found = sorted(p for p in (CORPUS / folder).rglob("*") if p.is_file())
    assert len(found) > 50
    return found


@pytest.mark.parametrize("folder", ["jpeg", "png", "webp"])
def test_corpus_images_equal_pillows_or_are_errors(folder: str) -> None:
    refused = set()
    same = 0
    for path in files(folder):
        data = path.read_bytes()
        expected = pillow(data)
        try:
            found = decoded(data)
        except ps.PenstockError as error:
            assert error.record == 0
            if expected is not None:
                refused.add(str(path.relative_to(CORPUS)))
        else:
            assert expected is not None, path
            np.testing.assert_array_equal(found, expected, err_msg=str(path))
            same += 1
    assert refused == {"jpeg": WARNED, "png": MISNUMBERED, "webp": set()}[folder]
    assert same > 60


@pytest.mark.parametrize("folder", ["jpeg", "png", "webp"])
def test_sizes_equal_the_manifest(folder: str) -> None:
    stated = re.compile(rf"^\| ({folder}/\S+) \|.* \| [A-Z]+ (\d+)x(\d+) (\S+?),? ", re.MULTILINE)
    rows = stated.findall((CORPUS / "MANIFEST.md").read_text())
    checked = 0
    for name, width, height, _ in rows:
        try:
            size = image_sizes([(CORPUS / name).read_bytes()])[0].as_py()
        except ps.PenstockError:
            assert pillow((CORPUS / name).read_bytes()) is None, name
            continue
        assert (size["width"], size["height"]) == (int(width), int(height)), name
        checked += 1
    assert checked > 60


def test_damaged_jpegs_are_returned_if_that_is_allowed() -> None:
    for name in WARNED:
        data = (CORPUS / name).read_bytes()
        np.testing.assert_array_equal(decoded(data, allow_damaged=True), pillow(data))
    cut = (CORPUS / "jpeg/libjpeg-turbo/testorig.jpg").read_bytes()[:3000]
    with pytest.raises(ps.TruncatedError, match="Premature end") as caught:
        decoded(cut)
    assert "allow_damaged" in str(caught.value)
    assert decoded(cut, allow_damaged=True).shape == (149, 227, 3)


def test_sixteen_bits_of_jpeg_are_not_supported() -> None:
    lossless = CORPUS / "jpeg/jpeg-decoder/reftest/lossless-1-jpeg_lossless_sel1.jpg"
    with pytest.raises(ps.UnsupportedError, match="16 bits"):
        decoded(lossless.read_bytes())


PIXELS = np.random.default_rng(5).integers(0, 256, (3, 9, 14, 3), np.uint8)
SMOOTH = np.add.outer(np.arange(40) * 3, np.arange(60) * 2).astype(np.uint8)
SMOOTH = np.stack([SMOOTH, SMOOTH[::-1], 255 - SMOOTH], -1)


def saved(image: np.ndarray, kind: str, mode: str | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    picture = Image.fromarray(image)
    (picture if mode is None else picture.convert(mode)).save(file, kind, **options)
    return file.getvalue()


SMALL = {
    "jpeg": saved(PIXELS[0], "JPEG"),
    "jpeg progressive": saved(PIXELS[0], "JPEG", progressive=True),
    "png": saved(PIXELS[0], "PNG"),
    "png palette": saved(PIXELS[0], "PNG", "P"),
    "webp": saved(PIXELS[0], "WEBP"),
    "webp lossless": saved(PIXELS[0], "WEBP", lossless=True),
    "ppm": saved(PIXELS[0], "PPM"),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_cut_of_a_small_image_is_an_error(name: str) -> None:
    data = SMALL[name]
    assert decoded(data).shape == (9, 14, 3)
    # The last byte of a chunk with an odd length is padding, so WebP can be decoded without it.
    for length in range(len(data) - data.startswith(b"RIFF")):
        with pytest.raises(ps.PenstockError):
            decoded(data[:length])


def test_a_damaged_png_is_reported_in_words() -> None:
    data = saved(PIXELS[0], "PNG")
    said: set[str] = set()
    for place in range(8, len(data), 3):
        with pytest.raises(ps.PenstockError) as caught:
            ps.decode_images([data[:place]])
        said.add(caught.value.message)
        with pytest.raises(ps.PenstockError) as caught:
            ps.decode_images([data[:place] + bytes([data[place] ^ 64]) + data[place + 1 :]])
        said.add(caught.value.message)
    assert "a damaged PNG: it ends too early" in said
    assert "a damaged PNG: the checksum of a chunk does not match" in said
    for message in said:
        assert not re.search(r"ChunkType|IDAT|[{}]|0x", message), message


def test_every_flipped_bit_of_a_png_is_an_error() -> None:
    data = saved(PIXELS[0][:3, :3], "PNG")
    for byte in range(len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[byte] ^= 1 << bit
            with pytest.raises(ps.PenstockError):
                decoded(bytes(broken))


@pytest.mark.parametrize("name", SMALL)
def test_flipped_bytes_end_in_an_image_of_that_size_or_an_error(name: str) -> None:
    rng = np.random.default_rng(len(name))
    limits = ps.Limits(image_pixels=1 << 20)
    for _ in range(2000):
        broken = np.frombuffer(SMALL[name], np.uint8).copy()
        broken[rng.integers(0, len(broken), 3)] = rng.integers(0, 256, 3)
        try:
            size = image_sizes([broken.tobytes()])[0].as_py()
            found = decoded(broken.tobytes(), limits=limits, allow_damaged=bool(rng.integers(2)))
        except ps.PenstockError:
            continue
        assert found.shape == (size["height"], size["width"], 3)


def claiming(codec: str, width: int, height: int) -> bytes:
    """An image of a few bytes that claims this size."""
    if codec == "jpeg":
        return SMALL["jpeg"].replace(
            struct.pack(">HH", 9, 14), struct.pack(">HH", height, width), 1
        )
    if codec == "png":
        head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        crc = struct.pack(">I", zlib.crc32(head))
        return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + crc + SMALL["png"][33:]
    if codec == "webp":
        sides = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
        body = b"WEBPVP8X" + struct.pack("<II", 10, 0) + sides + SMALL["webp"][12:]
        return b"RIFF" + struct.pack("<I", len(body)) + body
    return b"P6\n%d %d\n255\n" % (width, height)


@pytest.mark.parametrize("codec", ["jpeg", "png", "webp", "ppm"])
def test_size_that_an_image_only_claims_is_held_against_the_limit(codec: str) -> None:
    large = claiming(codec, 40_000, 30_000)
    assert image_sizes([large]).field("width").to_pylist() == [40_000]
    with pytest.raises(ps.LimitError, match="40000 x 30000") as caught:
        decoded(large)
    assert "image_pixels=1200000000" in str(caught.value)
    with pytest.raises(ps.LimitError, match="40000 x 30000"):
        reencode([large], "png")
    within = claiming(codec, 4000, 3000)
    with pytest.raises(ps.PenstockError):
        decoded(within)


def test_many_images_together_are_held_against_a_limit() -> None:
    with pytest.raises(ps.LimitError, match="batch_bytes") as caught:
        ps.decode_images([SMALL["png"]] * 4, limits={"batch_bytes": 3 * 378})
    assert caught.value.record == 3
    assert len(ps.decode_images([SMALL["png"]] * 4, limits={"batch_bytes": 4 * 378})) == 4


def test_images_of_one_size_are_one_array_that_can_be_written_to() -> None:
    found = ps.decode_images([SMALL["png"], SMALL["ppm"], SMALL["webp lossless"]])
    assert found.shape == (3, 9, 14, 3)
    for one in found:
        np.testing.assert_array_equal(one, PIXELS[0])
    found[0] = 7
    assert (found[0] == 7).all()


def test_images_of_several_sizes_are_a_list_with_none_for_a_null() -> None:
    array = pa.array([SMALL["png"], None, claiming("ppm", 2, 1) + b"abcdef"], pa.large_binary())
    found = ps.decode_images(array)
    assert [None if one is None else one.shape for one in found] == [(9, 14, 3), None, (1, 2, 3)]
    assert bytes(found[2].reshape(-1)) == b"abcdef"
    assert ps.decode_images([]) == []
    assert ps.decode_images([None]) == [None]


def test_images_may_be_in_any_binary_array() -> None:
    plain = pa.array([SMALL["png"], SMALL["png"]])
    typed = pa.ExtensionArray.from_storage(ImageType("png"), plain)
    fixed = plain.cast(pa.binary(len(SMALL["png"])))
    for array in (plain, typed, pa.chunked_array([typed, typed.slice(1)]), fixed, plain.slice(1)):
        for image in ps.decode_images(array):
            np.testing.assert_array_equal(image, PIXELS[0])
    with pytest.raises(ps.SchemaError, match="images are bytes"):
        ps.decode_images(pa.array(["text"]))


def test_errors_name_the_first_bad_record_for_any_number_of_threads() -> None:
    images = [SMALL["png"]] * 40
    images[17] = SMALL["png"][:-30]
    images[31] = b"GIF89a"
    for threads in (1, 2, 5):
        with pytest.raises(ps.FormatError) as caught:
            ps.decode_images(images, threads=threads)
        assert caught.value.record == 31, "heads are read before any pixels"
        with pytest.raises(ps.FormatError) as caught:
            ps.decode_images(images[:31], threads=threads)
        assert caught.value.record == 17
        with pytest.raises(ps.FormatError) as caught:
            reencode(images, "jpeg", threads=threads)
        assert caught.value.record == 17


@pytest.mark.parametrize(
    ("mode", "kind"), [("L", "PNG"), ("LA", "PNG"), ("RGBA", "PNG"), ("P", "PNG"), ("L", "JPEG")]
)
def test_modes_give_the_channels_that_are_asked_for(mode: str, kind: str) -> None:
    data = saved(PIXELS[1], kind, mode)
    picture = Image.open(io.BytesIO(data))
    np.testing.assert_array_equal(decoded(data), np.asarray(picture.convert("RGB")))
    grey = decoded(data, mode="grey")
    assert grey.shape == (9, 14)
    np.testing.assert_array_equal(grey, np.asarray(picture.convert("RGB").convert("L")))
    stored = decoded(data, mode="stored")
    kept = picture.convert("RGB") if mode == "P" else picture
    np.testing.assert_array_equal(stored.squeeze(), np.asarray(kept))
    with pytest.raises(ValueError, match="unknown mode"):
        decoded(data, mode="bgr")


def test_inks_become_colours_as_pillow_does_it() -> None:
    data = (CORPUS / "jpeg/pillow-tests/pil_sample_cmyk.jpg").read_bytes()
    assert image_sizes([data]).field("channels").to_pylist() == [3]
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    np.testing.assert_array_equal(decoded(data, mode="stored"), np.asarray(picture))
    np.testing.assert_array_equal(decoded(data, mode="grey"), np.asarray(picture.convert("L")))


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_codecs_without_loss_give_back_every_pixel(channels: int) -> None:
    rng = np.random.default_rng(channels)
    images = rng.integers(0, 256, (3, 7, 11, channels), np.uint8)
    for codec in ("png", "webp", "ppm"):
        if (codec == "ppm" and channels in {2, 4}) or (codec == "webp" and channels < 3):
            continue
        encoded = ps.encode_images(images, codec, lossless=True)
        assert encoded.type.codec == codec
        np.testing.assert_array_equal(
            ps.decode_images(encoded, mode="stored").reshape(images.shape), images
        )


def test_pillow_reads_what_is_encoded_as_what_it_encodes_itself() -> None:
    for quality in (1, 50, 90, 100):
        data = ps.encode_images([SMOOTH], "jpeg", quality=quality)[0].as_py()
        theirs = saved(SMOOTH, "JPEG", quality=quality)
        np.testing.assert_array_equal(pillow(data), pillow(theirs))
    data = ps.encode_images([SMOOTH], "webp", quality=80)[0].as_py()
    np.testing.assert_array_equal(pillow(data), pillow(saved(SMOOTH, "WEBP", quality=80)))
    for codec in ("png", "ppm"):
        np.testing.assert_array_equal(pillow(ps.encode_images([SMOOTH], codec)[0].as_py()), SMOOTH)


def test_greys_and_sizes_that_differ_are_encoded_from_a_list() -> None:
    images = [SMOOTH[..., 0], SMOOTH[:5], SMOOTH[::2, ::3]]
    encoded = ps.encode_images(images, "png")
    assert image_sizes(encoded).field("channels").to_pylist() == [1, 3, 3]
    for image, found in zip(images, ps.decode_images(encoded, mode="stored"), strict=True):
        np.testing.assert_array_equal(found.squeeze(), image)
    assert len(ps.encode_images([])) == 0


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        (np.zeros((1, 2, 2, 3), np.float32), "uint8"),
        ([np.zeros((2, 2, 3), np.int32)], "uint8"),
        (np.zeros((2, 2), np.uint8), "axes"),
        ([np.zeros(4, np.uint8)], "axes"),
        (np.zeros((1, 0, 2, 3), np.uint8), "an image cannot have"),
        (np.zeros((1, 2, 2, 5), np.uint8), "an image cannot have"),
    ],
)
def test_pixels_of_other_kinds_are_refused(images: Any, reason: str) -> None:
    with pytest.raises(ps.SchemaError, match=reason):
        ps.encode_images(images, "png")


def test_images_too_large_for_a_codec_are_refused() -> None:
    wide = np.zeros((1, 1, 16_384, 3), np.uint8)
    with pytest.raises(ps.SchemaError, match="16383"):
        ps.encode_images(wide, "webp")
    with pytest.raises(ps.SchemaError, match="65500"):
        ps.encode_images(np.zeros((1, 1, 70_000, 3), np.uint8), "jpeg")


def test_wrong_words_are_refused() -> None:
    with pytest.raises(ValueError, match="known: jpeg"):
        ps.encode_images([SMOOTH], "gif")
    with pytest.raises(ValueError, match="1 to 100"):
        ps.encode_images([SMOOTH], "jpeg", quality=0)
    with pytest.raises(ValueError, match="max_side"):
        reencode([SMALL["png"]], max_side=0)


def test_images_that_need_no_change_keep_their_bytes() -> None:
    images = pa.array([SMALL["jpeg"], None, SMALL["png"], SMALL["webp"]])
    assert reencode(images, max_side=14).storage == images
    changed = reencode(images, "jpeg", max_side=14)
    assert changed.type.codec == "jpeg"
    assert changed[0].as_py() == SMALL["jpeg"]
    assert changed[1].as_py() is None
    sizes = image_sizes(changed)
    assert sizes.field("codec").to_pylist() == ["jpeg", None, "jpeg", "jpeg"]
    assert reencode(images, "jpeg", quality=50)[0].as_py() != SMALL["jpeg"]


def test_bytes_do_not_depend_on_threads() -> None:
    images = [saved(SMOOTH[: 10 + n], "PNG") for n in range(12)]
    for codec, options in [("jpeg", {}), ("webp", {}), ("png", {}), ("raw", {})]:
        one = reencode(images, codec, max_side=31, threads=1, **options)
        assert one == reencode(images, codec, max_side=31, threads=3, **options)


@pytest.mark.parametrize("side", [1, 7, 20, 33, 59, 60, 100])
def test_the_longer_side_is_shrunk_by_averaging_areas(side: int) -> None:
    found = decoded(reencode([saved(SMOOTH, "PNG")], "raw", max_side=side)[0].as_py())
    if side >= 60:
        np.testing.assert_array_equal(found, SMOOTH)
        return
    height = max(1, round(40 * side / 60))
    assert found.shape == (height, side, 3)
    # The same by plain arithmetic: each old pixel is weighted by the part of it that the new pixel
    # covers.
    rows, columns = weights(40, height), weights(60, side)
    means = np.einsum("yi,xj,ijc->yxc", rows, columns, SMOOTH.astype(float))
    assert np.abs(found - means).max() <= 0.51


def weights(old: int, new: int) -> np.ndarray:
    edges = np.arange(new + 1) * old / new
    low = np.maximum(edges[:-1, None], np.arange(old)[None])
    high = np.minimum(edges[1:, None], np.arange(1, old + 1)[None])
    return np.clip(high - low, 0, None) * new / old


def test_large_jpegs_shrink_to_nearly_the_means_of_their_areas() -> None:
    big = np.repeat(np.repeat(SMOOTH, 8, 0), 8, 1)
    data = saved(big, "JPEG", quality=95)
    found = decoded(reencode([data], "raw", max_side=60)[0].as_py())
    rows, columns = weights(320, 40), weights(480, 60)
    means = np.einsum("yi,xj,ijc->yxc", rows, columns, decoded(data).astype(float))
    assert found.shape == (40, 60, 3)
    assert np.abs(found - means).mean() < 1.5


def test_alpha_and_grey_are_kept_as_far_as_the_codec_can() -> None:
    grey, clear = saved(SMOOTH, "PNG", "L"), saved(SMOOTH, "PNG", "RGBA")
    channels = {
        codec: image_sizes(reencode([grey, clear], codec)).field("channels").to_pylist()
        for codec in ("jpeg", "png", "webp", "raw")
    }
    assert channels == {"jpeg": [1, 3], "png": [1, 4], "webp": [3, 3], "raw": [1, 3]}
    half = SMOOTH.copy()
    half = np.dstack([half, half[..., :1]])
    webp = reencode([saved(half, "PNG")], "webp", lossless=True)
    np.testing.assert_array_equal(decoded(webp[0].as_py(), mode="stored"), half)
    rgb = reencode([grey], "raw", mode="rgb")
    assert image_sizes(rgb).field("channels").to_pylist() == [3]
    assert is_image(rgb.type)
