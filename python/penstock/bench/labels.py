"""Finds the chunks and shards of a dataset, and a column of labels. Orders are judged by these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock.bench.mixing import Layout

_LABELLED = ("label", "class", "target", "category", "cls", "species", "y")
_MOST_LABELS = 10_000


def layout_of(ds: ps.Dataset, label: str | None) -> tuple[Layout, str | None, int | None]:
    """Return the layout of a dataset, its label column and the number of labels. One or more columns are read."""
    names = ds.schema.names
    if label is not None and label not in names:
        raise ValueError(f"there is no column {label!r}; there are: {', '.join(names)}")
    tried = [label] if label is not None else _likely(ds)
    chunk_lengths: list[int] = []
    labels, found = None, ""
    for name in tried or [names[0]]:
        found = name
        chunk_lengths, labels = _read_labels(ds, name, is_label=bool(tried))
        if labels is not None:
            break
        if label is not None:
            raise ValueError(
                f"the values of {label!r} are not labels: there are nulls, lists, or too many values"
            )
    if sum(chunk_lengths) != len(ds):
        raise ValueError(
            f"only {sum(chunk_lengths)} of {len(ds)} records can be read, and an order needs all of them; "
            "penstock repair writes a file of the intact records"
        )
    firsts = np.concatenate([[0], np.cumsum([shard.num_records for shard in ds.shards])])[:-1]
    layout = Layout(len(ds), np.array(chunk_lengths, np.int64), firsts, labels)
    if labels is None:
        return layout, None, None
    return layout, found, int(labels.max()) + 1


def _likely(ds: ps.Dataset) -> list[str]:
    def rank(name: str) -> int:
        type_ = ds.schema.field(name).type
        if name.lower() in _LABELLED or pa.types.is_dictionary(type_):
            return 0
        word = name.lower()
        return 1 if any(part in word for part in ("label", "class")) else 2

    kinds = (pa.types.is_integer, pa.types.is_dictionary, pa.types.is_boolean)
    found: list[str] = []
    for name in ds.schema.names:
        type_ = ds.schema.field(name).type
        is_text = pa.types.is_binary(type_) or pa.types.is_string(type_)
        if any(is_kind(type_) for is_kind in kinds) or (is_text and rank(name) < 2):
            found.append(name)
    return sorted(found, key=rank)[:4]


def _read_labels(
    ds: ps.Dataset, name: str, *, is_label: bool
) -> tuple[list[int], np.ndarray | None]:
    """Return the chunk lengths, and the label number of each record if the column has labels."""
    lengths: list[int] = []
    parts: list[Any] = []
    for batch in ds.scan(columns=[name]):
        if batch.num_rows:
            lengths.append(batch.num_rows)
            if is_label:
                parts.append(batch.column(0))
    if not is_label:
        return lengths, None
    values = pa.chunked_array(parts)
    if pa.types.is_dictionary(values.type):
        values = values.unify_dictionaries()
    elif not pa.types.is_nested(values.type) and not isinstance(values.type, pa.ExtensionType):
        values = values.dictionary_encode()
    else:
        return lengths, None
    codes = values.combine_chunks()
    codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) else codes
    kinds = len(codes.dictionary)
    if codes.null_count or not 2 <= kinds <= min(_MOST_LABELS, max(2, len(codes) // 4)):
        return lengths, None
    return lengths, np.asarray(codes.indices).astype(np.int64)
