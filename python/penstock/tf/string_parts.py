"""Splits and joins strings: `tf.strings.split`, `join`, `unicode_split` and others."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.arrays import tensor
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.ragged_tensor import RaggedTensor
from penstock.tf.row_splits import sums
from penstock.tf.tensor import Tensor, convert_to_tensor
from penstock.tf.text_values import bytes_of, each, encoded, strings, text_of


def _cut(value: Any, cut: Callable[[bytes], list[Any]], dtype: Any = object) -> Any:
    """The parts of each string: a vector for one string, ragged rows for several."""
    given = strings(value)
    if isinstance(given, RaggedTensor):
        return given.with_values(_cut(given.values, cut, dtype))
    if np.ndim(given) > 1:
        rows = _cut(given.reshape(-1), cut, dtype)
        for size in reversed(given.shape[1:]):
            rows = RaggedTensor.from_uniform_row_length(rows, size)
        return rows
    texts = [given.item()] if not np.ndim(given) else given.tolist()
    rows = [_placeholders(dtype) if probing.is_on() else cut(text) for text in texts]
    flat = np.empty(sum(map(len, rows)), dtype)
    flat[:] = [part for row in rows for part in row]
    if not np.ndim(given):
        return tensor(flat)
    lengths = np.array([len(row) for row in rows], np.int64)
    return RaggedTensor(tensor(flat), sums(lengths).view(Tensor))


def _placeholders(dtype: Any) -> list[Any]:
    return probing.array([None], dtype).tolist()


def split(
    input: Any = None,
    sep: Any = None,
    maxsplit: int = -1,
    name: str | None = None,
    *,
    source: Any = None,
) -> Any:
    """The parts of each string between separators. Without a separator, the parts between white space.

    Returns:
        A vector for one string, a RaggedTensor for several.

    Example:
        >>> import penstock.tf as tf
        >>> (
        ...     tf.strings.split("a b  c").numpy().tolist(),
        ...     tf.strings.split(["a-b", "c"], "-").to_list(),
        ... )
        ([b'a', b'b', b'c'], [[b'a', b'b'], [b'c']])
    """
    between = bytes_of(sep) if sep is not None else b""
    given = source if input is None else input
    return _cut(given, lambda text: text.split(between or None, maxsplit))


def bytes_split(input: Any, name: str | None = None) -> Any:
    """The bytes of each string, as strings of one byte."""
    return _cut(input, lambda text: [bytes([byte]) for byte in text])


def unicode_split(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> Any:
    """The characters of each string, as strings.

    Example:
        >>> import penstock.tf as tf
        >>> [c.decode() for c in tf.strings.unicode_split("né", "UTF-8").numpy()]
        ['n', 'é']
    """
    read = _reader(input_encoding, errors, replacement_char)
    codec = _codec(input_encoding)
    return _cut(input, lambda text: [c.encode(codec) for c in read(text)])


def unicode_decode(
    input: Any,
    input_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """The code points of each string, int32."""
    read = _reader(input_encoding, errors, replacement_char, replace_control_characters)
    return _cut(input, lambda text: [ord(c) for c in read(text)], np.int32)


def unicode_encode(
    input: Any,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    name: str | None = None,
) -> Any:
    """Strings made from code points: from the rows of a ragged tensor, or along the last dimension."""
    codec = _codec(output_encoding)
    if isinstance(input, RaggedTensor):
        if isinstance(input.values, RaggedTensor):
            return input.with_values(
                unicode_encode(input.values, output_encoding, errors, replacement_char)
            )
        rows = input.to_list()
    else:
        given = convert_to_tensor(input)
        if given.ndim > 1:
            inner = [unicode_encode(row, output_encoding, errors) for row in given]
            return np.stack(inner).view(Tensor)
        rows = [given.tolist()]
    made = np.empty(len(rows), object)
    made[:] = [_text(row, errors, replacement_char).encode(codec) for row in rows]
    return tensor(made if isinstance(input, RaggedTensor) else made.reshape(()))


def _text(codes: list[int], errors: str, replacement: int) -> str:
    """Characters as text. A code point that is no character (a surrogate, or out of range) is an error."""
    sound = [0 <= code <= sys.maxunicode and not 0xD800 <= code <= 0xDFFF for code in codes]
    if errors == "strict" and not all(sound):
        wrong = codes[sound.index(False)]
        raise InvalidArgumentError(
            None, None, f"Code point is out of range for Unicode, or a noncharacter: {wrong}"
        )
    instead = "" if errors == "ignore" else chr(replacement)
    return "".join(chr(code) if ok else instead for code, ok in zip(codes, sound, strict=True))


def unicode_transcode(
    input: Any,
    input_encoding: str,
    output_encoding: str,
    errors: str = "replace",
    replacement_char: int = 65533,
    replace_control_characters: bool = False,
    name: str | None = None,
) -> Any:
    """The strings in another encoding."""
    read = _reader(input_encoding, errors, replacement_char, replace_control_characters)
    codec = _codec(output_encoding)
    refuses = replace_control_characters and errors == "strict"
    sound = _reader(input_encoding, errors, replacement_char)

    def changed(text: bytes) -> bytes:
        if refuses and re.search(r"[\x00-\x1f]", sound(text)):
            raise InvalidArgumentError(None, None, "Invalid formatting on input string")
        return read(text).encode(codec)

    return each(input, changed)


def _codec(encoding: str) -> str:
    return {"UTF-16-BE": "utf-16-be", "UTF-32-BE": "utf-32-be"}.get(encoding, encoding.lower())


def _reader(
    encoding: str, errors: str, replacement: int, controls: bool = False
) -> Callable[[bytes], str]:
    """A function that decodes a string; with `controls`, it treats control characters as errors of the string, but
    raises none for them."""
    codec = _codec(encoding)
    instead = "" if errors == "ignore" else chr(replacement)

    def read(text: bytes) -> str:
        try:
            return text.decode(codec)
        except UnicodeDecodeError as error:
            if errors == "strict":
                raise InvalidArgumentError(
                    None, None, "Invalid formatting on input string"
                ) from error
            if errors == "ignore":
                return text.decode(codec, "ignore")
            return text.decode(codec, "replace").replace("�", chr(replacement))

    if controls:
        return lambda text: re.sub(r"[\x00-\x1f]", lambda _: instead, read(text))
    return read


def join(inputs: Any, separator: Any = "", name: str | None = None) -> Any:
    """Strings joined element by element. Scalar strings are joined with every element.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strings.join(["translate: ", ["a", "b"]]).numpy().tolist()
        [b'translate: a', b'translate: b']
    """
    parts, between = [strings(part) for part in inputs], bytes_of(separator)
    for part in parts:
        if isinstance(part, RaggedTensor):
            flat = [p.flat_values if isinstance(p, RaggedTensor) else p for p in parts]
            return part.with_flat_values(join(flat, separator))
    spread = np.broadcast_arrays(*parts)
    made = np.empty(np.shape(spread[0]), object)
    flat = made.reshape(-1)
    for place, texts in enumerate(zip(*(s.ravel().tolist() for s in spread), strict=True)):
        flat[place] = between.join(texts)
    return made.view(Tensor)


def reduce_join(
    inputs: Any,
    axis: Any = None,
    keepdims: bool = False,
    separator: Any = "",
    name: str | None = None,
) -> Any:
    """The strings joined along all dimensions, or along those in `axis`. In a ragged tensor, rows are joined.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strings.reduce_join([["a", "b"], ["c", "d"]], axis=1, separator="-").numpy().tolist()
        [b'a-b', b'c-d']
    """
    between = bytes_of(separator)
    given = strings(inputs)
    if isinstance(given, RaggedTensor):
        rows = given.to_list()
        made = np.empty(len(rows), object)
        made[:] = [between.join(row) for row in rows]
        return reduce_join(made.view(Tensor), separator=separator) if axis is None else tensor(made)
    chosen = _joined_dimensions(axis, given.ndim)
    kept = [a for a in range(given.ndim) if a not in chosen]
    shape = given.shape
    moved = np.transpose(given.view(np.ndarray), [*kept, *chosen])
    rows = moved.reshape([*(shape[a] for a in kept), int(np.prod([shape[a] for a in chosen]))])
    made = np.empty(rows.shape[:-1], object)
    for place in np.ndindex(*made.shape):
        made[place] = between.join(rows[place].tolist())
    if keepdims:
        made = made.reshape([1 if a in chosen else shape[a] for a in range(given.ndim)])
    return made.view(Tensor)


def _joined_dimensions(axis: Any, rank: int) -> list[int]:
    """The dimensions that are joined, the last one first: the first of `axis` is joined first, so it varies fastest."""
    if not rank:
        return []
    if axis is None:
        return list(range(rank))
    return [int(a) % rank for a in np.atleast_1d(axis)][::-1]


def ngrams(
    data: Any,
    ngram_width: Any,
    separator: Any = " ",
    pad_values: Any = None,
    padding_width: int | None = None,
    preserve_short_sequences: bool = False,
    name: str | None = None,
) -> Any:
    """Joined runs of consecutive strings of one width, or of several."""
    given = strings(data)
    widths = [int(w) for w in np.atleast_1d(np.asarray(ngram_width))]
    before, after = ([b""] * 2, [b""] * 2)
    if pad_values is not None:
        pair = pad_values if isinstance(pad_values, tuple) else (pad_values, pad_values)
        before, after = [bytes_of(pair[0])], [bytes_of(pair[1])]
    between = bytes_of(separator)

    def runs(row: list[bytes]) -> list[bytes]:
        found: list[bytes] = []
        for width in widths:
            pads = 0 if pad_values is None else min(width - 1, padding_width or width - 1)
            whole = [*before * pads, *row, *after * pads] if pads else row
            found += [between.join(whole[i : i + width]) for i in range(len(whole) - width + 1)]
        if preserve_short_sequences and not found and row:
            found = [between.join(row)]
        return found

    if isinstance(given, RaggedTensor):
        rows = [runs(row) for row in given.to_list()]
    else:
        rows = [runs(given.tolist())]
    flat = np.empty(sum(map(len, rows)), object)
    flat[:] = [part for row in rows for part in row]
    if not isinstance(given, RaggedTensor):
        return tensor(flat)
    return RaggedTensor(tensor(flat), sums(np.array([len(r) for r in rows], np.int64)).view(Tensor))


def format(
    template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None
) -> Tensor:
    """A template with its placeholders replaced by tensors, as `tf.print` shows them.

    Example:
        >>> import penstock.tf as tf
        >>> tf.strings.format("{} of {}", (tf.constant(1), tf.constant([2, 3]))).numpy()
        b'1 of [2 3]'
    """
    from penstock.tf.printing import printed

    values = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    pieces = text_of(template).split(placeholder)
    if len(pieces) != len(values) + 1:
        raise ValueError(
            f"{len(pieces) - 1} placeholder(s) in template does not match {len(values)} tensor(s) provided as input"
        )
    shown = [printed(convert_to_tensor(value), summarize, "surrogateescape") for value in values]
    text = "".join(a + b for a, b in zip(pieces, [*shown, ""], strict=True))
    return tensor(np.array(encoded(text), object))
