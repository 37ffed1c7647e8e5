"""FarmHash's Fingerprint64, by which TensorFlow sorts strings into buckets, and SipHash-2-4 with a key.

Sources: Pike and Alakuijala's FarmHash (`farmhashna::Hash64`); Aumasson and Bernstein, "SipHash" (2012). All numbers
are unsigned, of 64 bits, little endian.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.tf.errors import InvalidArgumentError
from penstock.tf.tensor import Tensor, convert_to_tensor

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def _u64(text: bytes, at: int) -> int:
    return int.from_bytes(text[at : at + 8], "little")


def _u32(text: bytes, at: int) -> int:
    return int.from_bytes(text[at : at + 4], "little")


def _rotated(value: int, shift: int) -> int:
    return ((value >> shift) | (value << (64 - shift))) & _MASK if shift else value


def _mixed(value: int) -> int:
    return value ^ (value >> 47)


def _hash16(u: int, v: int, multiplier: int) -> int:
    a = _mixed(((u ^ v) * multiplier) & _MASK)
    b = _mixed(((v ^ a) * multiplier) & _MASK)
    return (b * multiplier) & _MASK


def _short(text: bytes) -> int:
    """The fingerprint of up to 16 bytes."""
    n = len(text)
    multiplier = _K2 + n * 2
    if n >= 8:
        a, b = (_u64(text, 0) + _K2) & _MASK, _u64(text, n - 8)
        c = (_rotated(b, 37) * multiplier + a) & _MASK
        d = ((_rotated(a, 25) + b) * multiplier) & _MASK
        return _hash16(c, d, multiplier)
    if n >= 4:
        return _hash16((n + (_u32(text, 0) << 3)) & _MASK, _u32(text, n - 4), multiplier)
    if n:
        y = text[0] + (text[n >> 1] << 8)
        z = n + (text[n - 1] << 2)
        return (_mixed((y * _K2 ^ z * _K0) & _MASK) * _K2) & _MASK
    return _K2


def _medium(text: bytes) -> int:
    """The fingerprint of 17 to 32 bytes."""
    n = len(text)
    multiplier = _K2 + n * 2
    a, b = (_u64(text, 0) * _K1) & _MASK, _u64(text, 8)
    c, d = (_u64(text, n - 8) * multiplier) & _MASK, (_u64(text, n - 16) * _K2) & _MASK
    u = (_rotated((a + b) & _MASK, 43) + _rotated(c, 30) + d) & _MASK
    v = (a + _rotated((b + _K2) & _MASK, 18) + c) & _MASK
    return _hash16(u, v, multiplier)


def _longer(text: bytes) -> int:
    """The fingerprint of 33 to 64 bytes."""
    n = len(text)
    multiplier = _K2 + n * 2
    a, b = (_u64(text, 0) * _K2) & _MASK, _u64(text, 8)
    c, d = (_u64(text, n - 8) * multiplier) & _MASK, (_u64(text, n - 16) * _K2) & _MASK
    y = (_rotated((a + b) & _MASK, 43) + _rotated(c, 30) + d) & _MASK
    z = _hash16(y, (a + _rotated((b + _K2) & _MASK, 18) + c) & _MASK, multiplier)
    e, f = (_u64(text, 16) * multiplier) & _MASK, _u64(text, 24)
    g = ((y + _u64(text, n - 32)) * multiplier) & _MASK
    h = ((z + _u64(text, n - 24)) * multiplier) & _MASK
    u = (_rotated((e + f) & _MASK, 43) + _rotated(g, 30) + h) & _MASK
    return _hash16(u, (e + _rotated((f + a) & _MASK, 18) + g) & _MASK, multiplier)


def _weak(text: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    w, x, y, z = (_u64(text, at + 8 * i) for i in range(4))
    a = (a + w) & _MASK
    b = _rotated((b + a + z) & _MASK, 21)
    c = a
    a = (a + x + y) & _MASK
    return (a + z) & _MASK, (b + _rotated(a, 44) + c) & _MASK


def fingerprint64(text: bytes) -> int:
    """The fingerprint of a string.

    Example:
        >>> from penstock.tf.hashes import fingerprint64
        >>> fingerprint64(b"penstock") % 100 < 100
        True
    """
    n = len(text)
    if n <= 32:
        return _short(text) if n <= 16 else _medium(text)
    return _longer(text) if n <= 64 else _long(text)


def _long(text: bytes) -> int:
    """The fingerprint of more than 64 bytes, computed in blocks of 64."""
    x, y = 81, (81 * _K1 + 113) & _MASK
    z = (_mixed((y * _K2 + 113) & _MASK) * _K2) & _MASK
    v, w = (0, 0), (0, 0)
    x = (x * _K2 + _u64(text, 0)) & _MASK
    end = (len(text) - 1) // 64 * 64
    for at in range(0, end, 64):
        x, y, z, v, w = _block(text, at, (x, y, z, v, w), _K1, 1)
    multiplier = (_K1 + ((z & 0xFF) << 1)) & _MASK
    w = ((w[0] + ((len(text) - 1) & 63)) & _MASK, w[1])
    v = ((v[0] + w[0]) & _MASK, v[1])
    w = ((w[0] + v[0]) & _MASK, w[1])
    x, y, z, v, w = _block(text, len(text) - 64, (x, y, z, v, w), multiplier, 9)
    first = (_hash16(v[0], w[0], multiplier) + _mixed(y) * _K0 + z) & _MASK
    return _hash16(first, (_hash16(v[1], w[1], multiplier) + x) & _MASK, multiplier)


def _block(text: bytes, at: int, state: tuple[int, int, int, tuple[int, int], tuple[int, int]],
           multiplier: int, weight: int) -> tuple[int, int, int, tuple[int, int], tuple[int, int]]:  # fmt: skip
    x, y, z, v, w = state
    x = (_rotated((x + y + v[0] + _u64(text, at + 8)) & _MASK, 37) * multiplier) & _MASK
    y = (_rotated((y + v[1] + _u64(text, at + 48)) & _MASK, 42) * multiplier) & _MASK
    x ^= (w[1] * weight) & _MASK
    y = (y + v[0] * weight + _u64(text, at + 40)) & _MASK
    z = (_rotated((z + w[0]) & _MASK, 33) * multiplier) & _MASK
    v = _weak(text, at, (v[1] * multiplier) & _MASK, (x + w[0]) & _MASK)
    w = _weak(text, at + 32, (z + w[1]) & _MASK, (y + _u64(text, at + 16)) & _MASK)
    return z, y, x, v, w


def siphash(text: bytes, key: tuple[int, int]) -> int:
    """SipHash-2-4 with a key of two numbers."""
    k0, k1 = key[0] & _MASK, key[1] & _MASK
    state = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D,
             k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]  # fmt: skip
    tail = text[len(text) // 8 * 8 :].ljust(7, b"\0") + bytes([len(text) & 0xFF])
    for at in range(0, len(text) // 8 * 8 + 8, 8):
        word = _u64(text, at) if at + 8 <= len(text) else _u64(tail, 0)
        state[3] ^= word
        _rounds(state, 2)
        state[0] ^= word
    state[2] ^= 0xFF
    _rounds(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def _left(value: int, shift: int) -> int:
    return _rotated(value, 64 - shift)


def _rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & _MASK
        v[1] = _left(v[1], 13) ^ v[0]
        v[0] = _left(v[0], 32)
        v[2] = (v[2] + v[3]) & _MASK
        v[3] = _left(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) & _MASK
        v[3] = _left(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) & _MASK
        v[1] = _left(v[1], 17) ^ v[2]
        v[2] = _left(v[2], 32)


def fingerprint(data: Any, method: Any = "farmhash64", name: str | None = None) -> Tensor:
    """The hash of each row's bytes, as 8 bytes.

    Args:
        data: numbers of any shape with a first axis, or strings in one dimension.
        method: "farmhash64", the only one.
        name: ignored.

    Returns:
        Tensor[rows, 8] of uint8.

    Raises:
        InvalidArgumentError: another method, a single value, or strings in several dimensions.

    Example:
        >>> import penstock.tf as tf
        >>> tf.fingerprint(["a", "b"]).shape
        TensorShape([2, 8])
    """
    given = convert_to_tensor(data).view(np.ndarray)
    known = np.asarray(method).item() in {"farmhash64", b"farmhash64"}
    if not known or not given.ndim or (given.dtype == object and given.ndim > 1):
        raise InvalidArgumentError(
            None,
            None,
            "fingerprint takes farmhash64, and numbers with a first axis or a list of strings",
        )
    rows = given.tolist() if given.dtype == object else [row.tobytes() for row in given]
    return (
        np.array([fingerprint64(row) for row in rows], "<u8")
        .view(np.uint8)
        .reshape(-1, 8)
        .view(Tensor)
    )
