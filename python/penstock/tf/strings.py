"""`tf.strings`: splitting, joining, replacing and measuring strings, one after another, in Python."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.hashes import fingerprint64, siphash
from penstock.tf.missing import absent_from
from penstock.tf.number_texts import as_string, to_number
from penstock.tf.re2 import pattern as re2_pattern
from penstock.tf.string_parts import (
    bytes_split,
    format,
    join,
    ngrams,
    reduce_join,
    split,
    unicode_decode,
    unicode_encode,
    unicode_split,
    unicode_transcode,
)
from penstock.tf.tensor import Tensor
from penstock.tf.text_values import characters, decoded, each, encoded, rewritten, strings, text_of

__all__ = [
    "as_string",
    "bytes_split",
    "format",
    "join",
    "length",
    "lower",
    "ngrams",
    "reduce_join",
    "regex_full_match",
    "regex_replace",
    "split",
    "strip",
    "substr",
    "to_hash_bucket",
    "to_hash_bucket_fast",
    "to_hash_bucket_strong",
    "to_number",
    "unicode_decode",
    "unicode_encode",
    "unicode_split",
    "unicode_transcode",
    "upper",
]


def lower(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """The strings in lower case: ASCII letters, or all letters if the encoding is "utf-8".

    With "utf-8", bytes that are not UTF-8 become U+FFFD.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strings.lower("A FOX").numpy()
        b'a fox'
    """
    if encoding:
        return each(input, lambda text: text.decode("utf-8", "replace").lower().encode())
    return each(input, bytes.lower)


def upper(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """The strings in upper case, with the arguments of `lower`."""
    if encoding:
        return each(input, lambda text: text.decode("utf-8", "replace").upper().encode())
    return each(input, bytes.upper)


def strip(input: Any, name: str | None = None) -> Any:
    """The strings without white space at both ends."""
    return each(input, bytes.strip)


def length(input: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """The length of each string, int32, in bytes (BYTE) or characters (UTF8_CHAR).

    Example:
        >>> import penstock.tf as tf
        >>> tf.strings.length(["é", ""], unit="UTF8_CHAR").numpy()
        array([1, 0], dtype=int32)
    """
    if unit not in {"BYTE", "UTF8_CHAR"}:
        raise ValueError(f"unit must be BYTE or UTF8_CHAR, not {unit!r}")
    if unit == "UTF8_CHAR":
        return each(input, lambda text: sum(byte & 0xC0 != 0x80 for byte in text), "int32")
    return each(input, len, "int32")


def substr(input: Any, pos: Any, len: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """A part of each string.

    Args:
        input: the strings.
        pos: where the part begins: one number, or one for each string. Negative numbers count from the end.
        len: the length of the part: one number, or one for each string. The part is shorter if the string ends before.
        unit: BYTE or UTF8_CHAR.
        name: ignored.

    Raises:
        InvalidArgumentError: a part that begins outside its string.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strings.substr(["hello", "world"], 1, 3).numpy().tolist()
        [b'ell', b'orl']
    """
    given = strings(input)
    texts, starts, lengths = np.broadcast_arrays(given, np.asarray(pos), np.asarray(len))
    made = np.empty(np.shape(texts), object)
    flat = made.reshape(-1)
    parts = zip(texts.ravel(), starts.ravel().tolist(), lengths.ravel().tolist(), strict=True)
    for place, (text, start, count) in enumerate(parts):
        flat[place] = _part(text, start, count, unit == "UTF8_CHAR")
    return made.view(Tensor)


def _part(text: bytes, start: int, count: int, by_character: bool) -> bytes:
    whole: Any = characters(text) if by_character else text
    size = whole.__len__()
    if not -size <= start <= size and not probing.is_on():
        raise InvalidArgumentError(None, None, f"pos {start} out of range for string {text!r}")
    start = max(start + size if start < 0 else start, 0)
    found = whole[start : start + max(count, 0)]
    return b"".join(found) if by_character else found


def regex_replace(
    input: Any, pattern: Any, rewrite: Any, replace_global: bool = True, name: str | None = None
) -> Any:
    r"""Replace the matches of an RE2 pattern in each string.

    Args:
        input: the strings.
        pattern: the pattern; `\w`, `\d` and `\s` match only ASCII.
        rewrite: the replacement, in which `\1` is the first group.
        replace_global: replace all matches, or only the first.
        name: ignored.

    Raises:
        InvalidArgumentError: an invalid pattern.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strings.regex_replace("a fox!", r"([[:punct:]])", r" \1").numpy()
        b'a fox !'
    """
    expression, replacement = _compiled(pattern), rewritten(text_of(rewrite))
    change = _all_replaced if replace_global and _may_be_empty(expression) else _replaced
    count = 0 if replace_global else 1
    return each(input, lambda text: encoded(change(expression, replacement, decoded(text), count)))


def _compiled(text: Any) -> re.Pattern[str]:
    return re2_pattern(text_of(text))


def _replaced(expression: re.Pattern[str], replacement: str, text: str, count: int) -> str:
    return expression.sub(replacement, text, count)


def _may_be_empty(expression: re.Pattern[str]) -> bool:
    """Whether some match may be empty; certain only if not."""
    return re.search(r"[*?|]|\\[AZbB]|\$|\^\)|\{0|\(\)", expression.pattern) is not None


def _all_replaced(expression: re.Pattern[str], replacement: str, text: str, _: int) -> str:
    """Replace all matches by RE2's rule, which differs from Python's for empty ones: no match begins where the last one
    ended and is empty; after such a place the search goes on at the next character."""
    parts: list[str] = []
    at, last = 0, -1
    while found := expression.search(text, at):
        parts.append(text[at : found.start()])
        if found.start() == found.end() == last:
            parts.append(text[last : last + 1])
            at, last = last + 1, -1
            if at > text.__len__():
                break
            continue
        parts.append(found.expand(replacement))
        at = last = found.end()
    return "".join(parts) + text[at:]


def regex_full_match(input: Any, pattern: Any, name: str | None = None) -> Any:
    """Whether an RE2 pattern matches each string as a whole.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strings.regex_full_match(["a1", "ab"], "[a-z][0-9]").numpy()
        array([ True, False])
    """
    expression = _compiled(pattern)
    return each(input, lambda text: expression.fullmatch(decoded(text)) is not None, "bool")


def to_hash_bucket_fast(input: Any, num_buckets: int, name: str | None = None) -> Any:
    """The bucket of each string by its FarmHash fingerprint, int64.

    Example:
        >>> import penstock.tf as tf
        >>> int(tf.strings.to_hash_bucket_fast("user 7", 10)) in range(10)
        True
    """
    return each(input, lambda text: fingerprint64(text) % num_buckets, "int64")


def to_hash_bucket_strong(input: Any, num_buckets: int, key: Any, name: str | None = None) -> Any:
    """The bucket of each string by SipHash with a key of two numbers, int64."""
    pair = int(key[0]), int(key[1])
    return each(input, lambda text: siphash(text, pair) % num_buckets, "int64")


def to_hash_bucket(input: Any, num_buckets: int, name: str | None = None) -> Any:
    """The bucket of each string, int64, by TensorFlow's own hash of bytes (MurmurHash64)."""
    return each(input, lambda text: _murmur(text) % num_buckets, "int64")


def _murmur(text: bytes, seed: int = 0xDECAFCAFFE) -> int:
    """TensorFlow's Hash64: MurmurHash2 of 64 bits."""
    mask, multiplier = (1 << 64) - 1, 0xC6A4A7935BD1E995
    found = seed ^ (text.__len__() * multiplier & mask)
    whole = text.__len__() // 8 * 8
    for at in range(0, whole, 8):
        word = int.from_bytes(text[at : at + 8], "little") * multiplier & mask
        word = (word ^ (word >> 47)) * multiplier & mask
        found = (found ^ word) * multiplier & mask
    if whole < text.__len__():
        found = (found ^ int.from_bytes(text[whole:], "little")) * multiplier & mask
    found = (found ^ (found >> 47)) * multiplier & mask
    return found ^ (found >> 47)


__getattr__ = absent_from("tf.strings")
