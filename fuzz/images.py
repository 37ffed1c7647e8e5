"""Images for the fuzzer: small ones of every codec, decoded, shrunk and read again."""

from __future__ import annotations

import io
import random
import struct
import zlib
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa

import penstock as ps
from penstock import _core
from penstock.loader._same import Pair
from penstock.loader.images import decode_into
from penstock.payloads.images import image_sizes, reencode

_LIMITS = ps.Limits(image_pixels=1 << 18)


def decoded(data: bytes, rng: random.Random) -> None:
    """An image: decoding must give what its head says, and images made from it can be decoded."""
    size = image_sizes([data])[0].as_py()
    mode = rng.choice(("rgb", "grey", "stored"))
    damaged = rng.random() < 0.3
    pixels = ps.decode_images([data], mode=mode, limits=_LIMITS, allow_damaged=damaged, threads=1)
    channels = {"rgb": (3,), "grey": (), "stored": (size["channels"],)}[mode]
    assert pixels.shape == (1, size["height"], size["width"], *channels)
    side = rng.randrange(1, 40)
    smaller = reencode(
        [data],
        rng.choice((None, "jpeg", "png", "raw")),
        max_side=side,
        limits=_LIMITS,
        allow_damaged=damaged,
        threads=1,
    )
    made = image_sizes(smaller)[0].as_py()
    assert max(made["width"], made["height"]) == min(side, max(size["width"], size["height"]))
    if max(size["width"], size["height"]) > side:
        ps.decode_images(smaller, threads=1)


def both_ways(data: bytes, rng: random.Random) -> None:
    """If penstock's decoder of Huffman codes accepts a JPEG, TurboJPEG alone must give the same pixels, for the whole
    image and for a part. Neither may fail except by a fault."""
    try:
        size = image_sizes([data])[0].as_py()
    except ps.PenstockError:
        return
    if size["codec"] != "jpeg" or size["width"] * size["height"] > 1 << 18:
        return
    part = rng.choice((1, 1, 2, 4, 8))
    across, down = -(-size["width"] // part), -(-size["height"] // part)
    left, top = rng.randrange(across) // 32 * 32, rng.randrange(down)
    region = (left, top, rng.randint(1, across - left), rng.randint(1, down - top))
    how: dict[str, Any] = {"channels": rng.choice((1, 3, 4)), "part": part}
    how["region"] = rng.choice((None, region))
    ours = _core.jpeg_pixels_by(data, by_parts=True, **how)
    if ours is not None:
        theirs = _core.jpeg_pixels_by(data, by_parts=False, **how)
        assert theirs is not None
        assert np.array_equal(np.asarray(ours), np.asarray(theirs))


def looked_at(data: bytes, rng: random.Random) -> None:
    """An image cropped for training must have the requested size, or be reported as a fault. The rest of the batch
    must be unchanged, and the exact decoder must accept everything that the fast one accepts."""
    size = rng.choice((1, 7, (16, 24), 40))
    crop = rng.choice((None, "center", "random"))
    rest: dict[str, Any] = {"crop": crop, "flip": True, "layout": rng.choice(("nhwc", "nchw"))}
    rest["dtype"] = rng.choice(("uint8", "float16", "float32", "uint16"))
    keys = np.array([rng.getrandbits(64)] * 2, np.uint64)
    damage = rng.choice(("skip", "salvage"))
    good = b"P6 1 1 255\n\xff\xff\xff"
    batches = []
    for exact in (False, True):
        spec = ps.Image(size, exact=exact, **rest)
        batch, faults = decode_into(
            [data, good], spec, keys, damage=damage, limits=_LIMITS, threads=rng.choice((1, 2))
        )
        assert batch.shape == (2, *spec.shape(1, 1))
        white = {"uint8": 255, "uint16": 65535}.get(spec.dtype, 1)
        assert np.all(batch[1] == batch.dtype.type(white))
        assert [fault.place for fault in faults] in ([], [0])
        assert not faults or faults[0].salvaged or not batch[0].any()
        batches.append((batch, [fault.salvaged for fault in faults]))
    (_, fast), (_, exactly) = batches
    assert fast == [] or exactly != []
    assert exactly == [] or fast != [] or data.endswith(b"\xff\xd9")
    whole, faults = decode_into([data], ps.Image(), keys[:1], damage=damage, limits=_LIMITS)
    assert len(whole) == 1
    assert [fault.place for fault in faults] in ([], [0])


def masked(data: bytes, rng: random.Random) -> None:
    """A mask with an image of its size, or of another size: the result is a mask or a fault, and the rest of the
    batch must be unchanged."""
    try:
        size = image_sizes([data])[0].as_py()
    except ps.PenstockError:
        size = {"width": 7, "height": 5}
    sides = [max(size[name] // rng.choice((1, 1, 1, 2)), 1) for name in ("width", "height")]
    sizes = pa.table({"width": [sides[0], 1], "height": [sides[1], 1]}).cast(
        pa.schema({"width": pa.uint32(), "height": pa.uint32()})
    )
    spec = ps.Image(
        rng.choice((1, 7, (16, 24))), crop=rng.choice((None, "center", "random")), flip=True
    )
    keys = np.array([rng.getrandbits(64)] * 2, np.uint64)
    how = {"limits": _LIMITS, "damage": "skip", "threads": rng.choice((1, 2)), "pool": None}
    column = pa.array([data, b"P5 1 1 255\n\xff"], pa.binary())
    pair = Pair(spec, sizes.to_struct_array().combine_chunks(), keys, how)
    masks, faults = pair.decoded(column, "nearest")
    assert masks.shape[:3] == (2, *spec.shape(1, 1)[:2])
    is_colour = masks.ndim == 4
    places = [fault.place for fault in faults]
    assert set(places) <= {0, 1} and (1 in places) == is_colour
    assert is_colour or np.all(masks[1] == 255)
    assert 0 not in places or not masks[0].any()


def resealed(data: bytes, rng: random.Random) -> None:
    """A PNG most of whose checksums are corrected, so that the code behind the checksums is reached."""
    if rng.random() < 0.8:
        at, parts = 8, [data[:8]]
        while len(data) - at >= 12:
            (length,) = struct.unpack_from(">I", data, at)
            end = min(at + 8 + length, len(data) - 4)
            parts += [data[at:end], struct.pack(">I", zlib.crc32(data[at + 4 : end]))]
            at = end + 4
        data = b"".join([*parts, data[at:]])
    decoded(data, rng)


def _pictures() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    ramp = np.add.outer(np.arange(33) * 7, np.arange(21) * 5).astype(np.uint8)
    return [
        rng.integers(0, 256, (5, 7, 3), np.uint8),
        np.stack([ramp, ramp[::-1], ramp], -1),
        ramp[:9, :16],
        np.dstack([ramp, ramp, ramp, ramp]),
    ]


def _encoded(codec: str, **options: bool) -> list[bytes]:
    return [one.as_py() for one in ps.encode_images(_pictures(), codec, **options)]


def jpegs() -> list[bytes]:
    """JPEGs, one of which is only the head of a huge one."""
    made = _encoded("jpeg")
    return [*made, made[1][:200]]


def baseline_jpegs() -> list[bytes]:
    """JPEGs with every subsampling that Pillow writes, with restart markers and with their own tables."""
    ways: list[dict[str, Any]] = [
        {"subsampling": 0},
        {"subsampling": 1, "restart_marker_blocks": 2},
        {"subsampling": 2, "optimize": True},
        {"subsampling": 2, "restart_marker_rows": 1},
    ]
    found = jpegs()[:3]
    for picture in _pictures()[:3]:
        for way in ways:
            file = io.BytesIO()
            PIL.Image.fromarray(picture).save(file, "JPEG", quality=70, **way)
            found.append(file.getvalue())
    return found


def seen() -> list[bytes]:
    """Images of every codec."""
    return [*jpegs(), *pngs()[:2], *webps()[:2], *ppms(), *others()[:4]]


def others() -> list[bytes]:
    """BMPs, GIFs and TIFFs."""
    grey, colour = PIL.Image.fromarray(_pictures()[2]), PIL.Image.fromarray(_pictures()[1])
    ways: list[tuple[PIL.Image.Image, str, dict[str, Any]]] = [
        (colour, "BMP", {}),
        (colour.quantize(16), "GIF", {}),
        (grey, "TIFF", {}),
        (colour, "TIFF", {"compression": "tiff_lzw"}),
        (colour, "TIFF", {"compression": "tiff_adobe_deflate"}),
        (colour, "TIFF", {"compression": "packbits"}),
        (colour.quantize(16), "BMP", {}),
        (grey.convert("1"), "BMP", {}),
        (grey.convert("1"), "TIFF", {"compression": "group4"}),
    ]
    found = []
    for image, kind, options in ways:
        file = io.BytesIO()
        image.save(file, kind, **options)
        found.append(file.getvalue())
    return found


def masks() -> list[bytes]:
    """Masks with palettes of 1 to 8 bits, and masks of 16 bits, in grey and in colour."""
    indices = _pictures()[2] % 2
    found = [
        *pngs()[:3],
        *ppms()[:3],
        _core.png_bytes(_pictures()[2][..., None].astype(np.uint16) * 200),
    ]
    for bits in (1, 2, 4, 8):
        image = PIL.Image.fromarray(indices, "L").convert("P")
        file = io.BytesIO()
        image.save(file, "PNG", bits=bits)
        found.append(file.getvalue())
    return found


def pngs() -> list[bytes]:
    """PNGs of one to four channels."""
    return _encoded("png")


def webps() -> list[bytes]:
    """Lossy and lossless WebPs."""
    return [*_encoded("webp"), *_encoded("webp", lossless=True)]


def ppms() -> list[bytes]:
    """PPMs and a PGM, also with other maximum values."""
    return [*_encoded("ppm"), b"P6 2 1 65535\n" + bytes(12), b"P5\n# a\n2 2\n15\n\1\2\3\4"]
