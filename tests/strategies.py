"""All Hypothesis strategies of the tests."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

payloads = st.lists(st.binary(max_size=200), max_size=30)
"""Payloads of a raw TFRecord file."""

keys = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12
).filter(lambda key: not key.startswith(("context/", "feature_lists/")))
"""Names of features."""

int64s = st.integers(-(1 << 63), (1 << 63) - 1)
float32s = st.floats(width=32, allow_nan=False)

_VALUES = {"int64": int64s, "float": float32s, "bytes": st.binary(max_size=20)}
_TYPES = {"int64": pa.int64(), "float": pa.float32(), "bytes": pa.binary()}


@st.composite
def batches(draw: st.DrawFn, min_records: int = 1, max_records: int = 20) -> pa.RecordBatch:
    """Record batches of the types that every format can hold: int64, float32 and binary, as scalars without nulls, or
    as lists that may be null."""
    num_records = draw(st.integers(min_records, max_records))
    names = draw(st.lists(keys, min_size=1, max_size=4, unique=True))
    columns, fields = [], []
    for name in sorted(names, key=str.encode):
        kind = draw(st.sampled_from(sorted(_VALUES)))
        value = _VALUES[kind]
        if draw(st.booleans()):
            # A list of two, so that inference cannot treat it as a scalar.
            lists = st.none() | st.lists(value, max_size=4)
            values = draw(st.lists(lists, min_size=num_records, max_size=num_records))
            values[0] = draw(st.lists(value, min_size=2, max_size=2))
            type_ = pa.list_(_TYPES[kind])
        else:
            values = draw(st.lists(value, min_size=num_records, max_size=num_records))
            type_ = _TYPES[kind]
        columns.append(pa.array(values, type_))
        fields.append(pa.field(name, type_))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


_LISTS = {"int64_list": int64s, "float_list": float32s, "bytes_list": st.binary(max_size=20)}

features = st.dictionaries(
    keys,
    st.none()
    | st.sampled_from(sorted(_LISTS)).flatmap(
        lambda kind: st.tuples(st.just(kind), st.lists(_LISTS[kind], max_size=4))
    ),
    max_size=6,
)
"""The features of an Example: (kind, values) by key, or None if the kind is not set."""
