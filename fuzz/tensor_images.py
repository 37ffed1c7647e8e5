"""Images for the fuzzer, as `tf.io` decodes them: every codec with every option, and images made from them."""

from __future__ import annotations

import random

import numpy as np

from fuzz import images
from penstock import _core

_PIXELS = 1 << 18


def _jpeg(data: bytes, rng: random.Random) -> np.ndarray:
    made = _core.jpeg_pixels(
        data,
        channels=rng.choice((0, 1, 3)),
        ratio=rng.choice((1, 2, 4, 8)),
        fancy=rng.random() < 0.5,
        fast=rng.random() < 0.5,
        recover=rng.random() < 0.5,
        fraction=rng.choice((0.0, 0.5, 1.0)),
        image_pixels=_PIXELS,
        window=rng.choice((None, (0, 0, 1, 1), (3, 2, 4, 5), (-1, 0, 1, 1), (0, 0, 1 << 30, 1))),
    )
    return np.asarray(made)


def decoded(data: bytes, rng: random.Random) -> None:
    """An image through the codec that its first bytes name: its size must be within the limit, and it can be
    resized."""
    if data.startswith(b"\xff\xd8"):
        made = _jpeg(data, rng)
    elif data.startswith(b"\x89P"):
        wide = rng.random() < 0.5
        channels = rng.choice((0, 1, 3, 4))
        made = np.asarray(
            _core.png_pixels(data, channels=channels, wide=wide, image_pixels=_PIXELS)
        )
        assert made.shape[2] == (channels or made.shape[2])
    elif data.startswith(b"GIF"):
        frames = _core.gif_pixels(data, first_only=rng.random() < 0.5, image_pixels=_PIXELS)
        made = np.asarray(frames)[0]
    else:
        channels = rng.choice((0, 3, 4))
        made = np.asarray(_core.bmp_pixels(data, channels=channels, image_pixels=_PIXELS))
    assert made.size <= _PIXELS * 4
    if made.size:
        method = rng.choice(("bilinear", "nearest", "bicubic", "area", "triangle", "lanczos3"))
        found = np.asarray(_core.resize_images(made, 3, 2, method, rng.random() < 0.5))
        assert found.shape == (3, 2, made.shape[2])
        assert np.isfinite(found).all()


def gifs() -> list[bytes]:
    """A GIF of two frames of 2 x 2 pixels with a palette of four colours, and a GIF of one frame."""
    head = b"GIF89a\2\0\2\0\x91\0\0" + bytes(range(12))
    frame = b"!\xf9\4\1\0\0\1\0,\0\0\0\0\2\0\2\0\0\2\3\x44\x34\5\0"
    return [head + frame + frame + b";", head + frame[8:] + b";"]


def bmps() -> list[bytes]:
    """BMPs of 8, 24 and 32 bits, stored bottom-up and top-down."""

    def made(bits: int, height: int) -> bytes:
        head = [b"BM", bytes(8), (54).to_bytes(4, "little"), (40).to_bytes(4, "little")]
        sides = [(3).to_bytes(4, "little"), height.to_bytes(4, "little", signed=True)]
        depth = [b"\1\0", bits.to_bytes(2, "little"), bytes(24)]
        return b"".join([*head, *sides, *depth]) + bytes(range(24))

    return [made(bits, height) for bits in (8, 24, 32) for height in (2, -2)]


def seeds() -> list[bytes]:
    """Images of all these codecs."""
    return [*images.jpegs(), *images.pngs(), *gifs(), *bmps()]
