"""`tf.io.encode_jpeg` and `tf.io.encode_png`: JPEGs have the same bytes as TensorFlow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock import _core
from penstock.tf.dtypes import uint8, uint16
from penstock.tf.errors import InternalError, InvalidArgumentError
from penstock.tf.tensor import Tensor, convert_to_tensor


def refuse(message: str) -> InvalidArgumentError:
    """The error for an invalid argument."""
    return InvalidArgumentError(None, None, message)


def scalar_bytes(contents: Any) -> bytes:
    """The bytes of a scalar string, given as bytes, text or a tensor."""
    if isinstance(contents, bytes):
        return contents
    tensor = convert_to_tensor(contents)
    if tensor.ndim:
        shape = ",".join(map(str, tensor.shape))
        raise refuse(f"`contents` must be scalar but got shape[{shape}]")
    value = tensor.numpy()
    if not isinstance(value, bytes):
        raise refuse(f"`contents` must be a string of bytes, not {value!r}")
    return value


def _pixels(image: Any, dtypes: tuple[Any, ...]) -> np.ndarray:
    array = np.ascontiguousarray(convert_to_tensor(image))
    if array.dtype not in dtypes:
        if isinstance(image, np.ndarray) and dtypes != (uint8,):
            known = ", ".join(one.name for one in dtypes)
            raise refuse(f"Value for attr 'T' of {array.dtype} is not in the list: {known}")
        array = np.ascontiguousarray(np.asarray(image).astype(dtypes[0].dtype))
    return array


def _shown(array: np.ndarray) -> str:
    return "[" + ",".join(map(str, np.shape(array))) + "]"


def encode_jpeg(
    image: Any,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: str = "in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: str = "",
    name: str | None = None,
) -> Tensor:
    r"""An image as a JPEG.

    Args:
        image: uint8[height, width, 1 or 3].
        format (str): "grayscale", "rgb", or "" to derive it from the channels.
        quality (int): 0 to 100.
        progressive (bool): write several scans.
        optimize_size (bool): make a smaller file, which takes longer.
        chroma_downsampling (bool): store colours at half resolution.
        density_unit (str), x_density, y_density (int): pixels per inch "in" or centimetre "cm".
        xmp_metadata (str): stored in the file.
        name: ignored.

    Returns:
        A scalar string Tensor.

    Raises:
        InvalidArgumentError: the image or an option is not valid.

    Example:
        >>> import numpy as np
        >>> from penstock.tf import codecs
        >>> codecs.encode_jpeg(np.zeros([2, 2, 3], np.uint8)).numpy()[:3]
        b'\xff\xd8\xff'
    """
    array = _pixels(image, (uint8,))
    if array.ndim != 3:
        raise refuse(f"image must be 3-dimensional{_shown(array)}")
    wanted = {"": (1, 3), "grayscale": (1,), "rgb": (3,)}.get(format)
    if wanted is None:
        raise refuse(f"Value for attr 'format' of {format!r} is not '', 'grayscale' or 'rgb'")
    if array.shape[2] not in wanted:
        message = f"format {format} expects {wanted[0]}" if format else "image must have 1 or 3"
        raise refuse(f"{message} channels, got {_shown(array)}")
    if not 0 <= quality <= 100:
        raise refuse(f"quality must be in [0,100], got {quality}")
    if density_unit not in {"in", "cm"}:
        raise refuse(f"Value for attr 'density_unit' of {density_unit!r} is not 'in' or 'cm'")
    return _made(
        lambda: _core.jpeg_bytes(
            array,
            quality=quality,
            progressive=progressive,
            optimize=optimize_size,
            chroma_downsampling=chroma_downsampling,
            density_unit=1 if density_unit == "in" else 2,
            x_density=x_density & 0xFFFF,
            y_density=y_density & 0xFFFF,
            xmp=scalar_bytes(xmp_metadata),
        ),
        "JPEG encoding failed",
    )


def _made(call: Callable[[], bytes], what: str) -> Tensor:
    made = np.empty((), object)
    try:
        made[()] = call()
    except _core.KernelError as error:
        raise InternalError(None, None, f"{what}: {error.args[0].message}") from None
    return made.view(Tensor)


def encode_png(image: Any, compression: int = -1, name: str | None = None) -> Tensor:
    """An image as a PNG; a batch as a batch of PNGs.

    Args:
        image: uint8 or uint16 [..., height, width, 1 to 4].
        compression (int): 0 to 9, the smallest file; -1 for the default.
        name: ignored.

    Returns:
        A string Tensor of the shape of the batch, without dimensions for one image.

    Raises:
        InvalidArgumentError: the image or an option is not valid.
    """
    array = _pixels(image, (uint8, uint16))
    if array.ndim < 3:
        raise refuse(f"images must be at least rank 3{_shown(array)}")
    if not 1 <= array.shape[-1] <= 4:
        raise refuse(f"image must have 1, 2, 3, or 4 channels, got {array.shape[-1]}")
    if not -1 <= compression <= 9:
        raise refuse(f"compression should be in [-1,9], got {compression}")
    level = None if compression < 0 else compression
    made = np.empty(array.shape[:-3], object)
    for place in np.ndindex(made.shape):
        one = np.ascontiguousarray(array[place])
        made[place] = _made(
            lambda one=one: _core.png_bytes(one, level=level), "PNG encoding failed"
        ).item()
    return made.view(Tensor)
