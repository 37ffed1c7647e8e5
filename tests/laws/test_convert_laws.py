"""Converting any format to any other gives the same values under the same names, or a clear error and no file."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from held import WRITABLE, table_of
from test_laws import written

import penstock as ps
from penstock.contract.format import Format
from penstock.payloads.images import image_sizes
from places import Place, at
from reading import sidecar_of

RECORDS = 60
# These formats can hold any columns that one of them writes; the other formats can hold only some.
HOLDS_ALL = {"tfrecord", "parquet", "arrow", "webdataset", "hdf5", "npz", "msgpack"}
each_source = pytest.mark.parametrize("source", WRITABLE, ids=lambda fmt: fmt.info.name)
each_target = pytest.mark.parametrize("target", WRITABLE, ids=lambda fmt: f"to-{fmt.info.name}")


def columns(dataset: ps.Dataset) -> dict[str, list[Any]]:
    table = pa.table(dataset)
    return {name: table.column(name).to_pylist() for name in table.schema.names}


def sizes(images: list[bytes]) -> list[Any]:
    return [(size["width"], size["height"]) for size in image_sizes(images).to_pylist()]


def as_tfrecord_has_it(value: Any) -> Any:
    """The table as TFRecord stores it: float64 becomes float32."""
    if isinstance(value, float):
        return pa.scalar(value, pa.float32()).as_py()
    if isinstance(value, list):
        return [as_tfrecord_has_it(one) for one in value]
    return value


@each_source
@each_target
def test_a_conversion_keeps_all_values_or_is_refused(
    source: Format, target: Format, place: Place
) -> None:
    records = table_of(source).slice(0, RECORDS)
    if source.info.name == "recordio":
        records = records.drop_columns(["id"])  # up to 2**64, beyond signed numbers
    path = written(source, place, records, "source")
    before = set(place.rglob("*"))
    to = str(place / f"target{target.info.extensions[0]}")
    try:
        made = ps.convert(path, to, format=target.info.name, prove=True)
    except ps.SchemaError as error:
        assert target.info.name not in HOLDS_ALL
        assert target.info.name != source.info.name
        names_it = error.field is not None or any(
            w in error.message for w in ("holds", "wants", "needs")
        )
        assert names_it, (
            f"a refusal names the field, or says what the format holds: {error.message}"
        )
        assert ".penstock-part" not in str(error)
        # The only new file is the index of the file that was read.
        assert set(place.rglob("*")) - before <= {at(sidecar_of(path))}
        return
    assert made.num_records == RECORDS
    found, wanted = columns(ps.open(to)), columns(ps.open(path))
    if target.info.name == "tfrecord" and source.info.name != "tfrecord":
        wanted = {
            name: [as_tfrecord_has_it(value) for value in values] for name, values in wanted.items()
        }
    if source.info.name == "imagefolder" and target.info.name in ("beton", "recordio"):
        # A .beton has JPEGs or pixels, and no PNGs.
        wanted = {name: wanted[name] for name in found if name in wanted}
        found = {name: found[name] for name in wanted}
        if target.info.name == "beton":
            wanted["image"], found["image"] = sizes(wanted["image"]), sizes(found["image"])
    assert found == wanted
