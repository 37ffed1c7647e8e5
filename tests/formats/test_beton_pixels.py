"""Pixels of a .beton that are not copied on the way: from the file directly into a loader's batch, or after a new
header into the file that a conversion writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.columns.lending import IN_PARTS, as_lent, in_parts, whole
from penstock.columns.types import ImageType, storage_of
from penstock.datasets.take import take
from penstock.errors import FormatError, LimitError
from penstock.loader.images import decode_into

PAGE = 1 << 21
COUNT = 60
KINDS = ("one size", "sizes", "jpg", "mixed")
ORDERS = {
    "in order": np.arange(COUNT),
    "a part": np.arange(7, 30),
    "backwards": np.arange(COUNT)[::-1].copy(),
    "scattered": np.random.default_rng(3).permutation(COUNT)[:25],
    "twice": np.array([5, 5, 59, 0, 5]),
    "one": np.array([31]),
    "none": np.arange(0),
}


def arrays(kind: str) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    sides = [(120, 90) if kind == "one size" else (8 + 11 * (n % 9), 150 - n) for n in range(COUNT)]
    return [rng.integers(0, 256, (*side, 3), np.uint8) for side in sides]


def beton(path: Path, kind: str) -> str:
    """Images, some long bytes, JSON and numbers, in 2 MiB pages with gaps between them."""
    rng = np.random.default_rng(6)
    columns: dict[str, Any] = {
        "image": ps.encode_images(arrays(kind), "ppm"),
        "label": pa.array(range(COUNT)),
        "blob": pa.array(
            [rng.bytes(int(n) * 700) for n in rng.integers(0, 90, COUNT)], pa.binary()
        ),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=COUNT * 4)), 4),
    }
    how = {"jpg": {"image_mode": "jpg"}, "mixed": {"image_mode": "proportion"}}
    options = how.get(kind, {"image_mode": "raw"})
    ps.write(pa.table(columns), str(path), page_bytes=PAGE, **options)
    return str(path)


def images_of(column: Any) -> list[bytes]:
    return (column.storage if isinstance(column, pa.ExtensionArray) else column).to_pylist()


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_borrowed_values_equal_decoded_values(tmp_path: Path, kind: str, mmap: bool) -> None:
    dataset = ps.open(beton(tmp_path / "a.beton", kind), mmap=mmap)
    for order in ORDERS.values():
        plain, lent = (take(dataset, order, None, lend=lend) for lend in (False, True))
        plain.validate(full=True)
        assert as_lent(lent).equals(as_lent(plain))
        is_apart = storage_of(lent.schema.field("image").type) == IN_PARTS
        assert is_apart == (kind in KINDS[:2] and len(order) > 0) or kind == "mixed"
        assert whole(lent.column("image")).type.codec == plain.schema.field("image").type.codec
    if kind in KINDS[:2]:
        decoded = ps.Image().decode(dataset.take(range(COUNT)).column("image"))
        for found, wanted in zip(decoded, arrays(kind), strict=True):
            assert (found == wanted).all()


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_makes_of_them_what_it_makes_of_files(
    tmp_path: Path, kind: str, mmap: bool
) -> None:
    dataset = ps.open(beton(tmp_path / "a.beton", kind), mmap=mmap)
    for spec in (ps.Image(48, crop="random", flip=True), ps.Image((70, 33), dtype="float32")):
        for order in (ps.Sequential(), ps.Shuffled(seed=2)):
            lent = ps.Loader(dataset, 16, order=order, decode={"image": spec}, drop_last=False)
            # A user's function must get columns with the types of the schema, so no views are
            # passed to it.
            decode = {"image": spec, "label": lambda column: column.to_numpy()}
            plain = ps.Loader(dataset, 16, order=order, decode=decode, drop_last=False)
            for one, other in zip(lent, plain, strict=True):
                assert one["image"].any()
                assert (one["image"] == other["image"]).all()
                assert (one["label"] == other["label"]).all()
                assert one["blob"].tolist() == other["blob"].tolist()


def test_shards_of_several_formats(tmp_path: Path) -> None:
    first = beton(tmp_path / "a.beton", "sizes")
    columns = ps.open(first).take(range(COUNT)).select(["image", "label"])
    ps.write(columns, str(tmp_path / "b.tfrecord"))
    schema = pa.schema([("image", ImageType("")), ("label", pa.int64())])
    dataset = ps.open([first, str(tmp_path / "b.tfrecord")], schema=schema)
    bare = ps.open(first, columns=["image", "label"])
    order = ORDERS["scattered"]
    both = np.concatenate([order, order + COUNT])
    found = ps.Image(32).decode(dataset.take(both).column("image"))
    assert (found[:25] == found[25:]).all()
    assert (found[:25] == ps.Image(32).decode(bare.take(order).column("image"))).all()
    two = ps.open([first, beton(tmp_path / "c.beton", "jpg")])
    lent = take(two, both[::-1].copy(), None, lend=True)
    assert as_lent(lent).equals(as_lent(two.take(both[::-1].copy())))


def test_shards_of_pixels_stay_in_parts(tmp_path: Path) -> None:
    paths = [beton(tmp_path / f"{n}.beton", kind) for n, kind in enumerate(KINDS[:2])]
    order = np.concatenate([ORDERS["scattered"], ORDERS["scattered"] + COUNT])[::-1].copy()
    for columns in (None, ["label", "image"]):
        lent = take(ps.open(paths), order, columns, lend=True)
        assert storage_of(lent.schema.field("image").type) == IN_PARTS
        assert as_lent(lent).equals(as_lent(ps.open(paths, columns=columns).take(order)))


def test_pixels_next_to_shards_of_another_format(tmp_path: Path) -> None:
    first = beton(tmp_path / "a.beton", "sizes")
    second = str(tmp_path / "b.tfrecord")
    ps.write(ps.open(first, columns=["image", "label"]).take(range(COUNT)), second)
    schema = pa.schema([pa.field("image", ImageType("")), pa.field("label", pa.int64())])
    order = np.concatenate([ORDERS["scattered"], ORDERS["scattered"] + COUNT])
    for paths in ([first, second], [second, first]):
        dataset = ps.open(paths, schema=schema)
        lent = take(dataset, order, None, lend=True)
        assert as_lent(lent).equals(as_lent(dataset.take(order)))
        assert lent.schema.field("label").nullable


def test_images_that_are_not_decoded_are_files(tmp_path: Path) -> None:
    some = ps.encode_images(arrays("sizes"), "ppm")
    path = str(tmp_path / "a.beton")
    ps.write(pa.table({"left": some, "right": some}), path, image_mode="raw", page_bytes=PAGE)
    for mmap in (False, True):
        loader = ps.Loader(ps.open(path, mmap=mmap), 20, decode={"left": ps.Image(30)})
        found = np.concatenate([batch["right"] for batch in loader])
        assert found.tolist() == images_of(some)


@pytest.mark.parametrize("target", ["tar", "tfrecord", "rec", "beton", "parquet"])
@pytest.mark.parametrize("kind", KINDS)
def test_conversions_write_files(tmp_path: Path, kind: str, target: str) -> None:
    first = beton(tmp_path / "a.beton", kind)
    for how in ({}, {"shuffle": 4}, {"threads": 1}):
        out = str(tmp_path / f"{'-'.join(how)}.{target}")
        options = {"image_mode": "raw", "page_bytes": PAGE} if target == "beton" else {}
        columns = ["image", "label"]
        done = ps.convert(first, out, columns=columns, prove=True, **options, **how)
        assert done.num_records == COUNT
        if "shuffle" in how:
            continue
        found = pa.Table.from_batches(ps.open(out).scan())
        name = next(n for n in ("image", "image.ppm", "image.jpg") if n in found.schema.names)
        wanted = images_of(ps.open(first).take(range(COUNT)).column("image"))
        if kind in KINDS[:2] or target != "beton":
            assert images_of(found.column(name).combine_chunks()) == wanted


def test_limits_hold_for_pixels(tmp_path: Path) -> None:
    path = beton(tmp_path / "a.beton", "one size")
    spec = {"image": ps.Image(10)}
    with pytest.raises(LimitError, match="image_pixels=10799"):
        next(iter(ps.Loader(ps.open(path, limits={"image_pixels": 10799}), 4, decode=spec)))
    assert len(list(ps.Loader(ps.open(path, limits={"image_pixels": 10800}), 20, decode=spec))) == 3


def apart(head: bytes, body: bytes) -> Any:
    return in_parts("ppm", pa.array([head], pa.binary()), pa.array([body], pa.binary_view()))


@pytest.mark.parametrize(
    "head",
    [b"P6 2 2 255 ", b"P6 1 1 255 x", b"P6 1 1 65535 ", b"P5 1 1 255 ", b"P6 1 1 25", b"no head"],
)
def test_a_head_that_does_not_fit_is_damage(head: bytes) -> None:
    key = np.zeros(1, np.uint64)
    with pytest.raises(FormatError):
        decode_into(apart(head, b"rgb"), ps.Image(1), key)
    batch, faults = decode_into(apart(head, b"rgb"), ps.Image(1), key, damage="skip")
    assert not batch.any()
    assert len(faults) == 1
    good, _ = decode_into(apart(b"P6 1 1 255 ", b"rgb"), ps.Image(1), key)
    assert good.tobytes() == b"rgb"


def test_two_gib_of_files_are_refused_before_they_are_made() -> None:
    body = pa.array([bytes(1 << 26)], pa.binary()).cast(pa.binary_view())
    bodies = pa.concat_arrays([body] * 32)
    heads = pa.array([b""] * 32, pa.binary())
    with pytest.raises(LimitError, match="2 GiB"):
        whole(in_parts("", heads, bodies))
