"""`tf.audio`: WAV files of 16 bits."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from penstock.tf import probing
from penstock.tf.arrays import tensor
from penstock.tf.encoders import scalar_bytes
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.missing import absent_from
from penstock.tf.tensor import Tensor, convert_to_tensor

__all__ = ["decode_wav", "encode_wav"]


class DecodeWav(NamedTuple):
    """The samples of a WAV file, and the number of samples per second."""

    audio: Tensor
    sample_rate: Tensor


def decode_wav(
    contents: Any,
    desired_channels: int = -1,
    desired_samples: int = -1,
    name: str | None = None,
) -> DecodeWav:
    """The samples of a WAV file of 16 bits, float32 [samples, channels] from -1 to 1.

    Args:
        contents: the file's bytes.
        desired_channels: the number of channels of the result. Further channels are dropped, or the last is repeated.
        desired_samples: the number of samples of the result. Further samples are dropped, or zeros are added.
        name: ignored.

    Raises:
        InvalidArgumentError: it is not a 16-bit WAV file.
    """
    if probing.is_on():
        shape = [s if s >= 0 else None for s in (desired_samples, desired_channels)]
        rate = np.array(probing.size(), np.int32)
        return DecodeWav(tensor(probing.array(shape, "float32")), tensor(rate))
    samples, rate = _read(scalar_bytes(contents))
    if desired_channels > 0:
        last = samples.shape[1] - 1
        samples = samples[:, [min(c, last) for c in range(desired_channels)]]
    if desired_samples > 0:
        more = max(desired_samples - len(samples), 0)
        samples = np.pad(samples, [(0, more), (0, 0)])[:desired_samples]
    found = samples.astype(np.float32) / np.float32(32768)
    return DecodeWav(tensor(found), tensor(np.array(rate, np.int32)))


def _read(data: bytes) -> tuple[np.ndarray[Any, Any], int]:
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise InvalidArgumentError(None, None, "Header mismatch: expected RIFF and WAVE")
    at, channels, rate = 12, 0, 0
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        body = data[at + 8 : at + 8 + size]
        if name == b"fmt " and len(body) >= 16:
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
            if kind != 1 or bits != 16:
                raise InvalidArgumentError(
                    None, None, f"Can only read 16-bit WAV files, but received {bits}"
                )
        elif name == b"data" and channels:
            whole = len(body) // (2 * channels) * 2 * channels
            return np.frombuffer(body[:whole], "<i2").reshape(-1, channels), rate
        at += 8 + size + size % 2
    raise InvalidArgumentError(None, None, "Data too short when trying to read string")


def encode_wav(audio: Any, sample_rate: Any, name: str | None = None) -> Tensor:
    """The bytes of a WAV file of 16 bits with samples [samples, channels] from -1 to 1."""
    given = convert_to_tensor(audio).view(np.ndarray)
    scaled = given * np.float32(32768)
    scaled = (
        np.trunc(scaled + np.copysign(np.float32(0.5), scaled)).clip(-32768, 32767).astype("<i2")
    )
    rate, channels, data = int(sample_rate), given.shape[1], scaled.tobytes()
    header = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", 16) + header + b"data" + struct.pack("<I", len(data))
    text = b"RIFF" + struct.pack("<I", len(body) + len(data)) + body + data
    return tensor(np.array(text, object))


__getattr__ = absent_from("tf.audio")
