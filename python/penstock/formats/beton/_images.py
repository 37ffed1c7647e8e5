"""Encodes images for a .beton, as JPEG files or as pixels, depending on the options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.columns.losses import Losses
from penstock.columns.numbers import memoryviews
from penstock.errors import FormatError, LimitError, PenstockError, SchemaError
from penstock.formats.beton._columns import Stored, binary_from, edges_of, picked
from penstock.formats.beton._layout import IMAGE, JPEG_MODE, RAW_MODE, field_of
from penstock.payloads.image_bytes import PICTURE_HINT

if TYPE_CHECKING:
    from penstock.formats.beton.options import BetonOptions

_ROW = field_of("", IMAGE).row
_START_OF_FRAME = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
_ANEW = "images that are not grey or RGB JPEGs, or are too large, are re-encoded as JPEGs"
_NO_ALPHA = "images are stored without their transparency"
_MOST_SEGMENTS = 200
_MOST_SIDE = (1 << 16) - 1
_MOST_JPEG_SIDE = 65_500


class Images:
    """Writes one column of encoded images."""

    def __init__(self, name: str, options: BetonOptions, threads: int, losses: Losses) -> None:
        self._name = name
        self._losses = losses
        self._options = options
        self._threads = threads
        self._most = options.max_side or _MOST_SIDE
        self._chance = np.random.Generator(np.random.PCG64(options.seed))

    def __call__(self, array: Any, first: int) -> Stored:
        everything = np.arange(len(array))
        mode = self._options.image_mode
        if mode == "jpg":
            return self._jpegs(array.storage, everything, first)
        images = array.storage.cast(pa.binary())
        if mode == "raw":
            return self._pixels(images, everything, first)
        if mode == "smart":
            made = self._jpegs(images, everything, first)
            is_raw = self._is_better_raw(made)
            jpegs = Stored(made.row[~is_raw], picked([made.values], np.flatnonzero(~is_raw)))
        else:
            is_raw = self._chance.random(len(images)) >= self._options.compress_probability
            jpegs = self._jpegs(images, np.flatnonzero(~is_raw), first)
        raws = self._pixels(images, np.flatnonzero(is_raw), first)
        row = np.zeros(len(images), _ROW)
        row[~is_raw], row[is_raw] = jpegs.row, raws.row
        index = np.empty(len(images), np.int64)
        index[~is_raw] = np.arange(len(jpegs.row))
        index[is_raw] = np.arange(len(raws.row)) + len(jpegs.row)
        return Stored(row, picked([jpegs.values, raws.values], index))

    def _is_better_raw(self, jpegs: Stored) -> np.ndarray:
        """Return which images to store as pixels in mode "smart"."""
        pixels = jpegs.row["width"].astype(np.int64) * jpegs.row["height"] * 3
        threshold = self._options.smart_threshold
        if threshold is not None:
            return pixels <= threshold
        return pixels < np.diff(edges_of(jpegs.values))

    def _jpegs(self, images: Any, chosen: np.ndarray, first: int) -> Stored:
        """Encode images as JPEGs. A JPEG keeps its bytes if it is not too large and ffcv can decode its colours."""
        images = images if len(chosen) == len(images) else picked([images], chosen)
        row = _plain_jpegs(images)
        is_kept = _are_kept(row, self._most)
        if is_kept.all():
            return Stored(row, images)
        images = images.cast(pa.binary())
        others = np.flatnonzero(~is_kept)
        self._losses.add(self._name, _ANEW, first + int(chosen[others[0]]))
        made = self._reencoded(images, chosen, others, first, "jpeg", self._options.jpeg_quality)
        row[others] = _plain_jpegs(made)
        index = np.arange(len(images))
        index[others] = len(images) + np.arange(len(others))
        return Stored(row, picked([images, made], index))

    def _pixels(self, images: Any, chosen: np.ndarray, first: int) -> Stored:
        from penstock.payloads.images import decode_images
        from penstock.payloads.orientation import orientations

        if not len(chosen):
            return Stored(np.zeros(0, _ROW), pa.array([], pa.binary()))
        places = np.arange(len(chosen))
        images = images if len(chosen) == len(images) else picked([images], chosen)
        try:
            if self._options.max_side is not None or (orientations(images) > 1).any():
                images = self._reencoded(images, chosen, places, first, "raw", None)
            pixels = decode_images(images, threads=self._threads)
        except PenstockError as error:
            raise self._of_record(error, chosen, first) from None
        self._note_what_pixels_lack(images, chosen, first)
        row = np.zeros(len(chosen), _ROW)
        row["mode"] = RAW_MODE
        sides = np.array([image.shape[:2] for image in pixels], np.int64)
        wrong = np.flatnonzero((sides > _MOST_SIDE).any(axis=1))
        if len(wrong):
            raise SchemaError(
                "an image in a .beton has at most 65535 pixels a side",
                record=first + int(chosen[wrong[0]]),
                field=self._name,
                found=f"{sides[wrong[0]][1]} x {sides[wrong[0]][0]}",
                hint="max_side=, to shrink it",
            )
        row["height"], row["width"] = sides[:, 0], sides[:, 1]
        if isinstance(pixels, np.ndarray):
            data = pixels.reshape(-1)
        else:
            data = np.concatenate([image.reshape(-1) for image in pixels])
        return Stored(row, binary_from(sides[:, 0] * sides[:, 1] * 3, data))

    def _note_what_pixels_lack(self, images: Any, chosen: np.ndarray, first: int) -> None:
        from penstock.payloads.images import image_sizes

        if self._options.max_side is not None:
            self._losses.add(self._name, f"images are shrunk to at most {self._most} pixels a side")
        channels = image_sizes(images).field("channels").to_numpy(zero_copy_only=False)
        has_alpha = np.flatnonzero(np.isin(channels, (2, 4)))
        if len(has_alpha):
            self._losses.add(self._name, _NO_ALPHA, first + int(chosen[has_alpha[0]]))

    def _reencoded(
        self,
        images: Any,
        chosen: np.ndarray,
        places: np.ndarray,
        first: int,
        codec: str,
        quality: int | None,
    ) -> Any:
        from penstock.payloads.images import reencode

        try:
            return reencode(
                images if len(places) == len(images) else picked([images], places),
                codec,
                quality=quality,
                max_side=self._options.max_side,
                mode="rgb",
                threads=self._threads,
            ).storage
        except PenstockError as error:
            found = self._of_record(error, chosen[places], first)
            if error.record is not None and _is_too_wide(images[int(places[error.record])]):
                raise found.at(hint="max_side=, to shrink it") from None
            raise found from None

    def _of_record(self, error: PenstockError, chosen: np.ndarray, first: int) -> SchemaError:
        """Convert an error about an image, by its position in `chosen`, to an error about the record."""
        if isinstance(error, SchemaError) and error.field is not None:
            return error
        record = None if error.record is None else first + int(chosen[error.record])
        made = SchemaError(
            f"the image cannot be stored: {error.message}",
            record=record,
            field=self._name,
            expected=error.expected,
            found=error.found,
        )
        if isinstance(error, FormatError) and not isinstance(error, LimitError):
            made.hint = PICTURE_HINT
        return made


def check_decoded(images: Any, options: BetonOptions) -> None:
    """Raise the error of the first image that may be decoded to be stored, and is damaged."""
    from penstock.payloads.damaged import first_damaged
    from penstock.payloads.image_bytes import bytes_of

    stored = bytes_of(images)
    is_kept = np.zeros(len(stored), bool)
    if options.image_mode == "jpg":
        is_kept = _are_kept(_plain_jpegs(stored), options.max_side or _MOST_SIDE)
    error = first_damaged(stored, np.flatnonzero(~is_kept))
    if error is not None:
        raise error


def _are_kept(row: np.ndarray, most: int) -> np.ndarray:
    """Return which images, whose rows `_plain_jpegs` returned, are stored as they are."""
    return (row["width"] > 0) & (np.maximum(row["width"], row["height"]) <= most)


def _is_too_wide(image: Any) -> bool:
    """Whether an image that cannot be encoded as JPEG is wider or higher than a JPEG can be."""
    from penstock.payloads.images import image_sizes

    try:
        (size,) = image_sizes([image.as_py()]).to_pylist()
    except PenstockError:
        return False
    return size is not None and max(size["width"], size["height"]) > _MOST_JPEG_SIDE


def _plain_jpegs(images: Any) -> np.ndarray:
    """Return the rows of JPEGs in grey or three colours, with zeros for other images."""
    sizes = [_jpeg_size(view) for view in memoryviews(images)]
    row = np.zeros(len(images), _ROW)
    row["mode"] = JPEG_MODE
    if sizes:
        row["width"], row["height"] = np.array(sizes, np.uint16).T
    return row


def _jpeg_size(image: memoryview) -> tuple[int, int]:
    """Return width and height from a JPEG's frame header, if it has 8 bits and one or three components, which every
    program can decode to RGB. Otherwise return zeros."""
    at, end = 2, len(image)
    if bytes(image[:2]) != b"\xff\xd8":
        return 0, 0
    for _ in range(_MOST_SEGMENTS):
        if at + 10 > end or image[at] != 0xFF:
            break
        marker = image[at + 1]
        if marker in _START_OF_FRAME:
            bits, components = image[at + 4], image[at + 9]
            height, width = image[at + 5] << 8 | image[at + 6], image[at + 7] << 8 | image[at + 8]
            is_plain = bits == 8 and components in (1, 3) and width and height
            return (width, height) if is_plain else (0, 0)
        at += 1 if marker == 0xFF else 2 + (image[at + 2] << 8 | image[at + 3])
    return 0, 0


def pixel_bytes(array: Any) -> np.ndarray:
    """Return the bytes that each image takes as pixels, from its header, or 0 if it is not an image."""
    from penstock.payloads.images import image_sizes

    try:
        sizes = image_sizes(array)
    except PenstockError:
        return np.zeros(len(array), np.int64)  # writing the image raises the error
    width, height = (np.asarray(sizes.field(name)).astype(np.int64) for name in ("width", "height"))
    return width * height * 3
