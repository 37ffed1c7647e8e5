"""JPEGs like those in training datasets: about 500 x 375 pixels, 68 KB, quality 90, chroma subsampled by two.

A thousand of them are made with Pillow: noise whose strength falls with its wavelength as in photographs, edges and
lines on it, and the noise of a camera. All environments make or find the same file.
"""

from __future__ import annotations

import io
import os
import struct
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

DISTINCT = 1000
NUM_RECORDS = 4000
SIDE = 224
BATCH = 256


def picture(number: int, width: int = 500, height: int = 375) -> bytes:
    """One JPEG; every fifth is upright, and some are lower."""
    from PIL import Image, ImageDraw

    rng = np.random.default_rng(number)
    if number % 5 == 4:
        width, height = height, width
    elif number % 17 == 3:
        height = height * 8 // 9
    waves = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    waves[0, 0] = 1

    def noise(fall: float) -> np.ndarray:
        shape = (height, width // 2 + 1)
        spectrum = rng.normal(size=shape) + 1j * rng.normal(size=shape)
        found = np.fft.irfft2(spectrum / waves**fall, s=(height, width))
        return (found - found.mean()) / found.std()

    light = noise(1.25 + 0.5 * rng.random())
    pixels = np.stack([128 + 50 * light + 25 * noise(1.7) for _ in range(3)], -1)
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(8, 30)):
        x, y, side = (int(rng.integers(0, most)) for most in (width, height, 120))
        colour = tuple(int(value) for value in rng.integers(0, 256, 3))
        match int(rng.integers(0, 3)):
            case 0:
                draw.ellipse([x, y, x + side + 5, y + side // 2 + 5], fill=colour)
            case 1:
                draw.line([x, y, x + side, y + side], fill=colour, width=int(rng.integers(1, 6)))
            case _:
                draw.rectangle([x, y, x + side // 2, y + side], outline=colour, width=2)
    grain = rng.normal(size=(height, width, 1)) * rng.uniform(1, 7)
    image = Image.fromarray((np.asarray(image) + grain).clip(0, 255).astype(np.uint8))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90, subsampling="4:2:0")
    return file.getvalue()


def jpegs() -> list[bytes]:
    """All records, in memory, each JPEG several times; makes the file if it is missing."""
    path = Path(os.environ["BENCHMARKS_TMPFS"]) / "jpegs"
    if not path.exists():
        with ProcessPoolExecutor() as processes:
            made = list(processes.map(picture, range(DISTINCT), chunksize=20))
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(b"".join(struct.pack("<Q", len(one)) + one for one in made))
        unfinished.rename(path)
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        found.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return [found[number % len(found)] for number in range(NUM_RECORDS)]


def mask(number: int, width: int, height: int) -> bytes:
    """The mask of an image: a PNG of about 6 KB with a palette, with thirty regions with ragged edges."""
    from PIL import Image

    rng = np.random.default_rng(number)
    rows, columns = np.mgrid[:height, :width]
    ragged = rng.normal(size=(2, height // 8 + 2, width // 8 + 2)).repeat(8, 1).repeat(8, 2) * 3
    rows, columns = rows + ragged[0, :height, :width], columns + ragged[1, :height, :width]
    centres = rng.integers(0, (height, width), (30, 2))
    far = [(rows - y) ** 2 + (columns - x) ** 2 for y, x in centres]
    image = Image.fromarray(np.argmin(far, 0).astype(np.uint8), "P")
    image.putpalette(rng.integers(0, 256, 768).tolist())
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def paired() -> str:
    """A TFRecord file of all images and their masks; penstock writes it if it is missing."""
    import penstock as ps

    path = Path(os.environ["BENCHMARKS_TMPFS"]) / "paired.tfrecord"
    if not path.exists():
        images = jpegs()
        sizes = ps.images.image_sizes(images[:DISTINCT])
        sides = [sizes.field(side).to_pylist() for side in ("width", "height")]
        masks = [mask(number, *side) for number, side in enumerate(zip(*sides, strict=True))]
        columns = {
            "image": images,
            "mask": [masks[number % DISTINCT] for number in range(NUM_RECORDS)],
        }
        ps.write(columns, path)
    return str(path)


def container(suffix: str) -> str:
    """A file of all records with their labels; penstock writes it if it is missing."""
    path = Path(os.environ["BENCHMARKS_TMPFS"]) / f"jpegs{suffix}"
    if not path.exists():
        import pyarrow as pa

        import penstock as ps
        from penstock.columns.types import ImageType

        label = pa.array(range(NUM_RECORDS))
        images = pa.ExtensionArray.from_storage(ImageType("jpeg"), pa.array(jpegs(), pa.binary()))
        names = ["jpg", "cls"] if suffix == ".tar" else ["image", "label"]
        ps.write(pa.table([images, label], names), str(path))
    return str(path)


RAW_RECORDS = 2000


def _raw_pixels() -> np.ndarray:
    shape = (RAW_RECORDS, SIDE, SIDE, 3)
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def raw_beton() -> str:
    """A .beton file of raw images of one size, 150 KB each; penstock writes it if it is missing."""
    path = Path(os.environ["BENCHMARKS_TMPFS"]) / "raw.beton"
    if not path.exists():
        import pyarrow as pa

        import penstock as ps

        images = ps.encode_images(_raw_pixels(), "ppm")
        table = pa.table({"image": images, "label": pa.array(range(RAW_RECORDS))})
        ps.write(table, str(path), image_mode="raw")
    return str(path)


def raw_total() -> int:
    """The sum of all bytes of these images."""
    return int(_raw_pixels().sum(dtype=np.uint64))
