"""The options of .beton writers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.formats.beton._layout import MAX_PAGE_BYTES, MIN_PAGE_BYTES

MOST_FIELDS = (1 << 16) - 1


MODES = ("jpg", "raw", "smart", "proportion")


@dataclass(frozen=True, slots=True)
class BetonOptions:
    """Options for writing a .beton."""

    image_mode: str = "jpg"
    """How images are stored. "jpg" copies JPEGs unchanged, and encodes other images as JPEGs. "raw" stores pixels.
    "smart" chooses by size. "proportion" stores some as JPEGs, chosen at random."""
    smart_threshold: int | None = None
    """With "smart": store a JPEG if the pixels take more bytes than this. None stores whichever takes fewer bytes."""
    max_side: int | None = None
    """Shrink images so that neither side has more pixels than this."""
    jpeg_quality: int = 90
    """The quality of JPEGs that penstock encodes, 1 to 100."""
    compress_probability: float = 0.5
    """With "proportion": the probability that an image is stored as a JPEG."""
    seed: int = 0
    """With "proportion": the seed of the random choice."""
    exact: bool = False
    """Whether to raise an error for images that would be re-encoded or lose their transparency, and for class labels,
    whose names would be lost."""
    page_bytes: int = 8 << 20
    """The size of a page in bytes: a power of two from 2 MiB to 2 GiB. All values of a record are in one page."""


def check_options(options: BetonOptions) -> None:
    """Raise ValueError for invalid options."""
    if options.image_mode not in MODES:
        raise ValueError(
            f"image_mode must be one of {', '.join(MODES)}, not {options.image_mode!r}"
        )
    size = options.page_bytes
    if not MIN_PAGE_BYTES <= size <= MAX_PAGE_BYTES or size & (size - 1):
        raise ValueError(f"page_bytes must be a power of two from 2 MiB to 2 GiB, not {size}")
    if not 1 <= options.jpeg_quality <= 100:
        raise ValueError(f"jpeg_quality must be 1 to 100, not {options.jpeg_quality}")
    if options.max_side is not None and options.max_side < 1:
        raise ValueError(f"max_side must be at least 1, not {options.max_side}")
    if not 0 <= options.compress_probability <= 1:
        raise ValueError(f"compress_probability must be 0 to 1, not {options.compress_probability}")
