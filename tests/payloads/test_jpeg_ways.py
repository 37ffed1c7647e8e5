"""Usual JPEGs are decoded with our Huffman decoder, and unusual ones by TurboJPEG from the start. The pixels must be
the same."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageFile

import penstock as ps
from penstock import _core
from penstock.payloads.images import image_sizes
from reading import SHARED

CORPUS = SHARED / "corpus" / "jpeg"
GOLDEN = Path(__file__).parents[1] / "golden" / "jpeg"
OTHERS = {"arithmetic.jpg", "lossless.jpg", "not-interleaved.jpg"}
ImageFile.MAXBLOCK = 1 << 20  # without this, Pillow cannot write some noisy images
SAMPLINGS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def picture(width: int, height: int, *, grey: bool = False, seed: int = 0) -> Image.Image:
    """An image between noise and a plain area."""
    rng = np.random.default_rng(seed)
    ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None] + [0, 40, 90]
    noise = rng.normal(size=(height, width, 3)) * rng.uniform(0, 60, (1, width, 1))
    pixels = (ramp % 256 + noise).clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if grey else pixels)


def jpeg(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def both(data: bytes, **how: Any) -> tuple[np.ndarray | None, np.ndarray | str]:
    """The pixels from each decoder: None if ours leaves the image to TurboJPEG, a message if TurboJPEG refuses it."""
    try:
        ours = _core.jpeg_pixels_by(data, by_parts=True, **how)
    except _core.KernelError:
        ours = None  # it is not a JPEG, or has no size
    try:
        theirs = _core.jpeg_pixels_by(data, by_parts=False, **how)
    except _core.KernelError as error:
        return None if ours is None else np.asarray(ours), error.args[0].message
    return None if ours is None else np.asarray(ours), np.asarray(theirs)


def agree(data: bytes, **how: Any) -> bool:
    """Whether our decoder decoded the image; if it did, checks that the result equals TurboJPEG's."""
    ours, theirs = both(data, **how)
    if ours is None:
        return False
    assert not isinstance(theirs, str), (theirs, how)
    assert np.array_equal(ours, theirs), how
    return True


def crops(width: int, height: int, number: int, rng: random.Random) -> list[dict[str, Any]]:
    """Scaled versions and regions of an image, and grey."""
    found: list[dict[str, Any]] = [{"part": part} for part in (1, 2, 4, 8)] + [
        {"channels": channels} for channels in (1, 4)
    ]
    for _ in range(number):
        part = rng.choice((1, 1, 2, 4, 8))
        across, down = -(-width // part), -(-height // part)
        left = rng.randrange(across) // 32 * 32
        top = rng.randrange(down)
        region = (left, top, rng.randint(1, across - left), rng.randint(1, down - top))
        found.append({"part": part, "region": region, "channels": rng.choice((3, 3, 1))})
    return found


@pytest.mark.parametrize("sampling", [*SAMPLINGS, "grey"])
@pytest.mark.parametrize("quality", [10, 55, 90, 100])
def test_files_of_usual_encoders_are_decoded_to_the_same_pixels(
    sampling: str, quality: int
) -> None:
    rng = random.Random(quality)
    for seed, (width, height) in enumerate([(1, 1), (8, 9), (33, 47), (97, 64), (250, 129)]):
        image = picture(width, height, grey=sampling == "grey", seed=seed)
        usual: dict[str, Any] = {"quality": quality}
        if sampling in SAMPLINGS:
            usual["subsampling"] = SAMPLINGS[sampling]
        for more in (
            {},
            {"optimize": True},
            {"restart_marker_blocks": 3},
            {"restart_marker_rows": 1},
        ):
            data = jpeg(image, **usual, **more)
            for how in crops(width, height, 6, rng):
                assert agree(data, **how) or how.get("channels") == 4, (more, how)


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_unusual_kinds_of_files_are_decoded_to_the_same_pixels(name: str) -> None:
    """libjpeg-turbo's cjpeg made the files, with the options in their names."""
    data = (GOLDEN / name).read_bytes()
    taken = {agree(data, **how) for how in crops(71, 45, 30, random.Random(name))}
    assert (True in taken) == (name not in OTHERS)
    usual = ps.decode_images([data])
    assert np.array_equal(usual.ravel(), np.asarray(both(data)[1]))


def test_penstock_itself_shrinks_a_lossless_file() -> None:
    """The library always decodes such files at full size, and it once wrote past a buffer with room for a smaller
    image."""
    data = (GOLDEN / "lossless.jpg").read_bytes()
    whole = np.asarray(Image.open(io.BytesIO((GOLDEN / "rgb.jpg").read_bytes())), np.float32)
    for part in (2, 4, 8):
        across, down = -(-71 // part), -(-45 // part)
        small = both(data, part=part)[1]
        assert isinstance(small, np.ndarray) and small.size == across * down * 3
        assert abs(small.mean() - whole.mean()) < 3
    fast, exact = (
        ps.decode_images([data], ps.Image((7, 9), exact=exact)) for exact in (False, True)
    )
    assert np.abs(fast.astype(int) - exact).mean() < 12


def test_tables_of_one_file_are_not_used_for_another_that_lacks_them() -> None:
    """libjpeg keeps tables from file to file, so decoding many files with one handle would give wrong colours."""
    data = jpeg(picture(64, 48), quality=30, optimize=True)
    at, kept = 2, [data[:2]]
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        kept += [data[at:end]] if data[at + 1] != 0xDB else []
        at = end
    without = b"".join([*kept, data[at:]])
    for records in ([without], [data, without]):
        with pytest.raises(ps.FormatError, match="antization table"):
            ps.decode_images(records, threads=1)


def test_corpus_files_are_decoded_to_the_same_pixels() -> None:
    rng = random.Random(1)
    taken, left = 0, 0
    for path in sorted(path for path in CORPUS.rglob("*") if path.is_file()):
        try:
            told = image_sizes([data := path.read_bytes()])[0].as_py()
        except ps.PenstockError:
            continue
        if told["codec"] != "jpeg" or told["width"] * told["height"] > 1 << 22:
            continue
        for how in crops(told["width"], told["height"], 4, rng):
            agreed = agree(data, **how)
            taken, left = taken + agreed, left + (not agreed)
    assert taken > 200 and left > 200, (taken, left)


def damages(data: bytes, every: int) -> Iterator[bytes]:
    """The file with single bits flipped, truncated, and with markers and bytes inserted or removed."""
    scan = data.index(b"\xff\xda")
    for at in range(scan, len(data), every):
        yield data[:at]
        yield data[:at] + b"\xff\xd9"
        yield data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]
        yield data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]
        yield data[:at] + data[at + 1 :]
        yield data[:at] + bytes([at % 256]) + data[at:]
        yield data[:at] + b"\xff" + bytes([0xD0 + at % 10]) + data[at:]
        yield data[:at] + b"\xff" + data[at:]


@pytest.mark.parametrize("allow_damaged", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": 2},
        {"subsampling": 0, "optimize": True},
        {"subsampling": 1, "restart_marker_blocks": 5},
        {"subsampling": 2, "restart_marker_rows": 1},
    ],
)
def test_damage_is_reported_and_salvaged_as_the_other_way_does(
    options: dict[str, Any], allow_damaged: bool
) -> None:
    data = jpeg(picture(100, 75), quality=60, **options)
    taken = 0
    for number, damaged in enumerate(damages(data, 37)):
        part = (1, 2, 4, 8)[number % 4]
        across, down = -(-100 // part), -(-75 // part)
        left = 32 if part < 3 and number % 3 else 0
        region = None if number % 5 == 0 else (left, down // 3, across - left, max(1, down // 2))
        taken += agree(damaged, part=part, region=region, allow_damaged=allow_damaged)
        usual = usually(damaged, allow_damaged)
        by_other = both(damaged, allow_damaged=allow_damaged)[1]
        assert np.array_equal(usual, by_other), number
    assert taken, "some damage is none that a decoder can see"


def usually(data: bytes, allow_damaged: bool) -> np.ndarray | str:
    """The result that users get."""
    try:
        images = pa.array([data], pa.binary())
        pixels, _ = _core.decode_images(
            images, image_pixels=1 << 20, batch_bytes=1 << 24, allow_damaged=allow_damaged
        )
    except _core.KernelError as error:
        return error.args[0].message
    return np.asarray(pixels)


def test_a_hint_does_not_advise_what_was_given() -> None:
    (data,) = ps.encode_images([np.zeros((64, 64, 3), np.uint8)], "jpeg").to_pylist()
    cut = bytes(data)[: bytes(data).find(b"\xff\xda")]
    with pytest.raises(ps.FormatError) as caught:
        ps.decode_images([cut])
    assert "allow_damaged=True" in str(caught.value.hint)
    for image in (None, ps.Image(8)):
        with pytest.raises(ps.FormatError) as caught:
            ps.decode_images([cut], image, allow_damaged=True)
        assert caught.value.hint is None


def test_a_jpeg_that_ends_before_its_pixels_says_so() -> None:
    data = jpeg(picture(40, 30))
    scan = data.index(b"\xff\xda")
    with pytest.raises(ps.FormatError, match="a JPEG that ends before its pixels"):
        ps.decode_images(pa.array([data[:scan]]), ps.Image(), allow_damaged=True)
