"""An independent reader and writer that follows MXNet's rules reads files that penstock writes, and the reverse."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from fuzz import mxnet_rules as rules

# Payloads full of magics, at multiples of four and at other offsets.
_pieces = st.one_of(
    st.just(rules.MAGIC_BYTES),
    st.just(rules.MAGIC_BYTES[1:] + rules.MAGIC_BYTES[:1]),
    st.binary(max_size=9),
    st.integers(0, 300).map(bytes),
)
payloads = st.lists(st.lists(_pieces, max_size=8).map(b"".join), max_size=20)
in_one_folder = settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@in_one_folder
@given(records=payloads)
def test_both_write_the_same_bytes_and_read_them_alike(
    records: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "a.rec"
    ps.write({"data": pa.array(records, pa.binary())}, path, overwrite=True, index=False)
    assert path.read_bytes() == rules.file_of(records)
    assert rules.records_of(path.read_bytes())[0] == records
    dataset = ps.open(str(path), raw=True, index="never")
    found = [row for batch in dataset.scan() for row in batch.column(0).to_pylist()]
    assert found == records
    lent = ps.open(str(path), schema=pa.schema([("data", pa.binary_view())]), index="never")
    assert [row for batch in lent.scan() for row in batch.column(0).to_pylist()] == records
    numbers = list(range(len(records)))[::-1]
    assert dataset.take(numbers).column(0).to_pylist() == records[::-1]


_ids = st.one_of(
    st.integers(0, (1 << 64) - 1), st.just(int.from_bytes(rules.MAGIC_BYTES * 2, "little"))
)
_magic_label = struct.unpack("<f", rules.MAGIC_BYTES)[0]
_labels = st.one_of(st.floats(width=32, allow_nan=False), st.just(_magic_label))
_image = st.lists(_pieces, max_size=5).map(lambda parts: b"\xff\xd8\xff\xe0" + b"".join(parts))


@in_one_folder
@given(
    rows=st.lists(st.tuples(_labels, _ids, _ids, _image), min_size=1, max_size=12),
    lists=st.booleans(),
    data=st.data(),
)
def test_packs_mean_the_same_to_both(
    rows: list[tuple[float, int, int, bytes]], lists: bool, data: st.DataObject, tmp_path: Path
) -> None:
    path = tmp_path / "a.rec"
    labels: list[float] | list[list[float]] = [row[0] for row in rows]
    if lists:
        some = st.lists(_labels, min_size=1, max_size=5)
        labels = [data.draw(some) for _ in rows]
    type_ = pa.list_(pa.float32()) if lists else pa.float32()
    ids = [pa.array([row[n] for row in rows], pa.uint64()) for n in (1, 2)]
    images = [row[3] for row in rows]
    columns = {"label": pa.array(labels, type_), "id": ids[0], "id2": ids[1], "image": images}
    ps.write(columns, path, overwrite=True, index=False)
    wanted = [(label, *row[1:]) for label, row in zip(labels, rows, strict=True)]
    packed = [rules.pack(label, image, a, b) for label, a, b, image in wanted]
    assert path.read_bytes() == rules.file_of(packed)
    assert [rules.unpack(one) for one in rules.records_of(path.read_bytes())[0]] == wanted
    found = list(ps.open(str(path), index="never"))
    assert [tuple(row.values()) for row in found] == wanted
