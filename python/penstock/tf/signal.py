"""`tf.signal`: frames, windows and short-time Fourier transforms of audio, computed by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf.arrays import tensor
from penstock.tf.dtypes import as_dtype
from penstock.tf.error_classes import InvalidArgumentError
from penstock.tf.missing import absent_from
from penstock.tf.tensor import Tensor, convert_to_tensor

__all__ = [
    "fft",
    "frame",
    "hamming_window",
    "hann_window",
    "ifft",
    "irfft",
    "linear_to_mel_weight_matrix",
    "mfccs_from_log_mel_spectrograms",
    "rfft",
    "stft",
]


def _array(value: Any) -> np.ndarray[Any, Any]:
    return convert_to_tensor(value).view(np.ndarray)


def _preferred(value: Any, kind: type[np.generic]) -> np.ndarray[Any, Any]:
    """A tensor as it is, and what is not yet a tensor as one of this type, as TensorFlow converts it here."""
    if isinstance(value, Tensor):
        return value.view(np.ndarray)
    given = np.asarray(value)
    if np.iscomplexobj(given) and not issubclass(kind, np.complexfloating):
        given = np.real(given)
    return given.astype(kind)


def _complex_only(value: Any, name: str) -> np.ndarray[Any, Any]:
    given = _preferred(value, np.complex64)
    if not np.iscomplexobj(given):
        raise InvalidArgumentError(None, None, f"{name} takes complex numbers, not {given.dtype}")
    return given


def _raised_cosine(length: Any, periodic: bool, dtype: Any, a: float, b: float) -> Tensor:
    size = int(length)
    kind = as_dtype(dtype).dtype
    if size == 1:
        return tensor(np.ones(1, kind))
    even = 1 - size % 2
    count = np.asarray(size + int(periodic) * even - 1, kind)
    places = np.arange(size, dtype=kind)
    return tensor((a - b * np.cos(2 * np.pi * places / count)).astype(kind))


def hann_window(
    window_length: Any, periodic: bool = True, dtype: Any = "float32", name: str | None = None
) -> Tensor:
    """A window that rises from 0 to 1 and falls again, with the form of a cosine."""
    return _raised_cosine(window_length, periodic, dtype, 0.5, 0.5)


def hamming_window(
    window_length: Any, periodic: bool = True, dtype: Any = "float32", name: str | None = None
) -> Tensor:
    """Like `hann_window`, but rising from 0.08."""
    return _raised_cosine(window_length, periodic, dtype, 0.54, 0.46)


def frame(
    signal: Any,
    frame_length: Any,
    frame_step: Any,
    pad_end: bool = False,
    pad_value: Any = 0,
    axis: int = -1,
    name: str | None = None,
) -> Tensor:
    """Overlapping parts of a signal along a dimension.

    Args:
        signal: the signal.
        frame_length, frame_step: the number of samples in a part, and from the start of one part to the next.
        pad_end: also return parts that reach beyond the end, filled up with `pad_value`.
        axis: the dimension.
        name: ignored.

    Example:
        >>> import penstock.tf as tf
        >>> tf.signal.frame([1, 2, 3, 4], 2, 1).numpy().tolist()
        [[1, 2], [2, 3], [3, 4]]
    """
    given = np.moveaxis(_array(signal), axis, -1)
    length, step = int(frame_length), int(frame_step)
    size = given.shape[-1]
    count = -(-size // step) if pad_end else max(0, 1 + (size - length) // step)
    if pad_end:
        more = max(0, (count - 1) * step + length - size)
        pads = [(0, 0)] * (given.ndim - 1) + [(0, more)]
        given = np.pad(given, pads, constant_values=pad_value)
    places = np.arange(count)[:, None] * step + np.arange(length)
    made = given[..., places]
    at = axis % (made.ndim - 1)
    return tensor(np.moveaxis(made, [-2, -1], [at, at + 1]))


def _complex(given: np.ndarray[Any, Any]) -> Any:
    return np.complex128 if given.dtype in (np.float64, np.complex128) else np.complex64


def rfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The Fourier transform of real numbers along the last dimension."""
    given = _preferred(input_tensor, np.float32)
    length = None if fft_length is None else int(np.asarray(fft_length).reshape(-1)[0])
    return tensor(np.fft.rfft(given, length).astype(_complex(given)))


def irfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The inverse of `rfft`."""
    given = _preferred(input_tensor, np.complex64)
    if not np.iscomplexobj(given):
        raise ValueError(f"irfft takes complex numbers, not {given.dtype}")
    length = None if fft_length is None else int(np.asarray(fft_length).reshape(-1)[0])
    kind = np.float64 if given.dtype == np.complex128 else np.float32
    return tensor(np.fft.irfft(given, length).astype(kind))


def fft(input: Any, name: str | None = None) -> Tensor:
    """The Fourier transform of complex numbers along the last dimension."""
    given = _complex_only(input, "fft")
    return tensor(np.fft.fft(given).astype(given.dtype))


def ifft(input: Any, name: str | None = None) -> Tensor:
    """The inverse of `fft`."""
    given = _complex_only(input, "ifft")
    return tensor(np.fft.ifft(given).astype(given.dtype))


def stft(
    signals: Any,
    frame_length: Any,
    frame_step: Any,
    fft_length: Any = None,
    window_fn: Callable[..., Any] | None = hann_window,
    pad_end: bool = False,
    name: str | None = None,
) -> Tensor:
    """The Fourier transforms of overlapping parts of a signal, each multiplied by a window."""
    length = int(frame_length)
    size = 1 << max(length - 1, 0).bit_length() if fft_length is None else int(fft_length)
    parts = frame(signals, length, frame_step, pad_end)
    if window_fn is not None:
        parts = parts * window_fn(length, dtype=parts.dtype)
    return rfft(parts, [size])


def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20,
    num_spectrogram_bins: Any = 129,
    sample_rate: Any = 8000,
    lower_edge_hertz: float = 125.0,
    upper_edge_hertz: float = 3800.0,
    dtype: Any = "float32",
    name: str | None = None,
) -> Tensor:
    """Weights that turn a spectrogram's bins into bins of the mel scale."""
    kind = as_dtype(dtype).dtype

    def mel(hertz: Any) -> Any:
        return 1127.0 * np.log1p(np.asarray(hertz, kind) / 700.0)

    linear = np.linspace(0.0, float(sample_rate) / 2.0, int(num_spectrogram_bins), dtype=kind)[1:]
    bins = mel(linear)[:, None]
    edges = np.linspace(mel(lower_edge_hertz), mel(upper_edge_hertz), num_mel_bins + 2, dtype=kind)
    low, centre, high = edges[:-2], edges[1:-1], edges[2:]
    weights = np.maximum(
        0, np.minimum((bins - low) / (centre - low), (high - bins) / (high - centre))
    )
    return tensor(np.pad(weights, [(1, 0), (0, 0)]).astype(kind))


def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Any, name: str | None = None) -> Tensor:
    """The cepstral coefficients of log-mel spectrograms: their discrete cosine transform along the last dimension,
    as many as there are bins.

    Raises:
        ValueError: the dtype is not float32 or float64, or there are no bins.

    Example:
        >>> import penstock.tf as tf
        >>> tf.signal.mfccs_from_log_mel_spectrograms(tf.ones([5, 13])).numpy().shape
        (5, 13)
    """
    given = _array(log_mel_spectrograms)
    if given.dtype not in (np.float32, np.float64):
        raise ValueError(f"log_mel_spectrograms must be float32 or float64, not {given.dtype}")
    count = given.shape[-1]
    if not count:
        raise ValueError(f"num_mel_bins must be positive, not {count}")
    turns = np.exp(-0.5j * np.pi * np.arange(count) / count).astype(_complex(given))
    made = np.fft.rfft(given, 2 * count)[..., :count].astype(turns.dtype) * turns
    return tensor((made.real * np.sqrt(2.0 / count)).astype(given.dtype))


__getattr__ = absent_from("tf.signal")
