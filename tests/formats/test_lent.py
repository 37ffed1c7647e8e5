"""Long byte strings pass from one file to another as views into the buffer that was read. The new file must be the
same as if they had been copied."""

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock import formats
from penstock.columns.batches import conform
from penstock.columns.lending import lent_schema
from penstock.columns.numbers import memoryviews
from penstock.columns.types import ImageType
from penstock.datasets.take import take
from penstock.loader._recipe import _taken_bytes
from penstock.tuned import LARGE_RECORD_BYTES
from penstock.verbs.write.incoming import Incoming
from penstock.verbs.write.write import write
from reading import index_of

LENDING = [fmt.info.name for fmt in formats.FORMATS if fmt.info.takes_views]
FIELD = {"recordio": "data", "beton": "data", "webdataset": "bin", "tfrecord": "data"}


def values(count: int, seed: int = 0) -> list[bytes]:
    """Byte strings with lengths around the limits for views."""
    rng = np.random.default_rng(seed)
    lengths = [1, 11, 12, 13, 14, 600, 16383, 16384, 16385, 70_001]
    return [rng.bytes(int(rng.choice(lengths))) for _ in range(count)]


def table_of(path, **how) -> pa.Table:
    return pa.Table.from_batches(ps.open(str(path), **how).scan())


def lent(batch: pa.RecordBatch) -> pa.RecordBatch:
    schema = lent_schema(batch.schema)
    arrays = []
    for field, column in zip(schema, batch.columns, strict=True):
        if isinstance(field.type, ImageType):
            views = column.storage.cast(pa.binary_view())
            arrays.append(pa.ExtensionArray.from_storage(field.type, views))
        else:
            arrays.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def pictures(count: int) -> pa.Array:
    """JPEGs of some tens of kilobytes, and small ones."""
    rng = np.random.default_rng(1)
    shapes = [(150, 200, 3) if n % 3 else (8, 8, 3) for n in range(count)]
    return ps.encode_images([rng.integers(0, 255, s, np.uint8) for s in shapes], quality=95)


def test_the_formats_that_take_views():
    assert set(LENDING) >= {"tfrecord", "webdataset", "recordio", "beton"}


@pytest.mark.parametrize("name", LENDING)
@pytest.mark.parametrize("threads", [1, 3])
def test_views_are_written_as_bytes_are(tmp_path, name, threads):
    suffix = formats.by_name(name).info.extensions[0]
    for kind, column in (("bytes", pa.array(values(60), pa.binary())), ("images", pictures(40))):
        field = FIELD[name] if kind == "bytes" else "image"
        columns = {field: column}
        if name != "recordio" or kind == "images":
            columns["label"] = pa.array(range(len(column)), pa.int64())
        batch = pa.record_batch(columns)
        parts = [batch.slice(start, 25) for start in range(0, len(batch), 25)]
        for how, given in (("plain", parts), ("lent", [lent(part) for part in parts])):
            incoming = Incoming(batch.schema, iter(given), None)
            write(incoming, tmp_path / f"{how}{suffix}", threads=threads, overwrite=True)
        plain, other = (tmp_path / f"{how}{suffix}" for how in ("plain", "lent"))
        assert plain.read_bytes() == other.read_bytes(), kind


def test_two_long_columns_and_lists_of_long_values(tmp_path):
    some = values(90)
    lists = [some[n : n + 1 + n % 3] for n in range(30)]
    batch = pa.record_batch({"a": some[:30], "b": some[30:60], "lists": lists})
    ps.write(batch, tmp_path / "a.tfrecord")
    schema = pa.schema([("a", pa.binary()), ("b", pa.binary()), ("lists", pa.list_(pa.binary()))])
    found = table_of(tmp_path / "a.tfrecord", schema=schema)
    assert found.to_pylist() == batch.to_pylist()
    for compression in ("gzip", "zlib"):
        path = tmp_path / f"{compression}.tfrecord"
        ps.write(batch, path, compression=compression)
        assert table_of(path, schema=schema) == found


@pytest.mark.parametrize("source", ["tfrecord", "tar", "rec", "beton"])
@pytest.mark.parametrize("target", ["tfrecord", "tar", "rec", "beton", "tar.gz", "tfrecord.gz"])
def test_large_images_are_converted_as_they_are(tmp_path, source, target):
    images = pictures(50)
    mean = sum(map(len, images.storage.to_pylist())) / 50
    assert mean > LARGE_RECORD_BYTES
    batch = pa.record_batch({"image": images, "label": pa.array(range(50), pa.int64())})
    first = tmp_path / f"a.{source}"
    ps.write(batch, first)
    made = {}
    for threads in (1, 3):
        out = tmp_path / f"b{threads}.{target}"
        columns = [
            n for n in ps.open(str(first)).schema.names if n.split(".")[0] in batch.schema.names
        ]
        rename = {n: n.split(".")[0] for n in columns if "." in n}
        how = {"columns": columns, "rename": rename, "prove": True, "threads": threads}
        assert ps.convert(str(first), str(out), **how).num_records == 50
        made[threads] = out.read_bytes()
    assert made[1] == made[3]
    table = table_of(out)
    names = {name.split(".")[0]: name for name in table.schema.names}
    for name, wanted in (("image", images.storage.to_pylist()), ("label", list(range(50)))):
        column = table.column(names[name]).combine_chunks()
        column = column.storage if isinstance(column, pa.ExtensionArray) else column
        assert column.to_pylist() == wanted
    shuffled = tmp_path / f"c.{target}"
    ps.convert(str(first), str(shuffled), columns=columns, rename=rename, shuffle=3, prove=True)
    assert len(ps.open(str(shuffled))) == 50


def test_skipped_damage_is_not_borrowed(tmp_path):
    path = tmp_path / "a.tfrecord"
    ps.write({"image": pictures(20).storage}, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    index_of(tmp_path / "a.tfrecord").unlink()
    dataset = ps.open(str(path), damage="skip", index="never")
    assert ps.convert(dataset, str(tmp_path / "b.tar")).num_records == 19


def test_images_of_views_are_cast_by_their_storage():
    some = pa.array([b"no image, but longer than a view", b"short"], pa.binary_view())
    column = pa.ExtensionArray.from_storage(ImageType("jpeg", pa.binary_view()), some)
    batch = pa.record_batch({"image": column})
    for wanted in (pa.binary(), pa.large_binary(), ImageType("jpeg"), ImageType("")):
        found = conform(batch, pa.schema([("image", wanted)]), "somewhere").column(0)
        stored = found.storage if isinstance(found, pa.ExtensionArray) else found
        assert found.type == wanted
        assert stored.to_pylist() == some.to_pylist()
    assert lent_schema(lent_schema(batch.schema)) == batch.schema


def test_memoryviews_of_any_byte_strings():
    some = [b"", *values(40), b"\xff\x00"]
    for type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        array = pa.array(some, type_)
        for part, wanted in ((array, some), (array[7:19], some[7:19]), (array[:0], [])):
            views = memoryviews(part)
            assert [bytes(view) for view in views] == wanted
            assert all(view.format == "B" for view in views)
    assert bytes(memoryviews(pa.array([b"abc"], pa.binary(3)))[0]) == b"abc"
    assert memoryviews(pa.array([], pa.binary_view())) == []


@pytest.mark.parametrize("kind", ["tar", "rec", "tfrecord"])
def test_images_of_several_shards_are_taken_in_any_order(tmp_path, kind):
    images = pictures(60)
    batch = pa.record_batch({"image": images, "label": pa.array(range(60), pa.int64())})
    ps.write(batch, tmp_path / f"a.{kind}", num_shards=5)
    source = str(tmp_path / f"a-*.{kind}")
    dataset = ps.open(source)
    (name,) = [n for n in dataset.schema.names if n.startswith("image")]
    order = np.random.default_rng(2).permutation(60)
    found = take(dataset, order, [name], lend=True).column(name)
    stored = found.storage if isinstance(found, pa.ExtensionArray) else found
    assert stored.type == pa.binary_view()
    assert stored.to_pylist() == [images.storage[int(n)].as_py() for n in order]
    # The number of buffers is that of reads, not proportional to the number of records.
    assert len(stored.buffers()) <= 2 + 2 * 5
    assert _taken_bytes(pa.record_batch({"image": found})) == sum(map(len, stored.to_pylist()))
    target = tmp_path / "b.tfrecord"
    ps.convert(source, str(target), columns=[name], shuffle=1, prove=True)
    found = table_of(target).column(0).to_pylist()
    assert sorted(found) == sorted(images.storage.to_pylist())


@pytest.mark.parametrize(
    "kinds", [("tar", "tfrecord"), ("tfrecord", "tar"), ("tfrecord", "msgpack")]
)
@pytest.mark.parametrize("shuffle", [None, 4])
def test_shards_of_several_formats_are_borrowed_together(tmp_path, kinds, shuffle):
    images = pictures(30).storage
    paths = []
    for number, kind in enumerate(kinds):
        paths.append(str(tmp_path / f"{number}.{kind}"))
        ps.write({"jpg": images[15 * number : 15 * number + 15]}, paths[-1])
    for schema in (
        None,
        pa.schema([("jpg", pa.binary())]),
        pa.schema([("jpg", ImageType("jpeg"))]),
    ):
        if schema is None and "msgpack" in kinds:
            continue
        dataset = ps.open(paths, schema=schema)
        for target in ("tfrecord", "tar", "rec"):
            rename = {"jpg": "data"} if target == "rec" else {}
            out = tmp_path / f"out.{target}"
            how = {"columns": ["jpg"], "rename": rename, "shuffle": shuffle, "overwrite": True}
            ps.convert(dataset, str(out), prove=True, **how)
            (name,) = [n for n in ps.open(str(out)).schema.names if n in ("jpg", "data")]
            column = table_of(out).column(name).combine_chunks()
            found = (
                column.storage if isinstance(column, pa.ExtensionArray) else column
            ).to_pylist()
            assert (found if shuffle is None else sorted(found)) == (
                images.to_pylist() if shuffle is None else sorted(images.to_pylist())
            )
        loaded = [b for x in ps.Loader(dataset, 10, columns=["jpg"]) for b in x["jpg"].tolist()]
        assert sorted(map(bytes, loaded)) == sorted(images.to_pylist())
