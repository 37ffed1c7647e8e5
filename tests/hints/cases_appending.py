"""Hints of append, of convert, and of changing fields that cannot be changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from steps import Case, Cases, cli, rows

import penstock as ps
from fuzz.mds_shards import folder_of

OLD, NEW = {"a": [1, 2]}, {"a": [3]}
BOTH = [{"a": 1}, {"a": 2}, {"a": 3}]


def no_end(*endings: str) -> Case:
    """A case for the endings of files that cannot be appended to."""
    for ending in endings:
        Path(ending).mkdir()
        ps.write(OLD, f"{ending}/part-00000.{ending}")
        ps.write(OLD, f"one.{ending}")

    def advised() -> None:
        for ending in endings:
            ps.append(NEW, ending)
            assert pa.table(ps.open(ending)).column(0).to_pylist() == [1, 2, 3], ending
            ps.write(NEW, f"two.{ending}")
            both = ps.open([f"one.{ending}", f"two.{ending}"])
            assert pa.table(both).column(0).to_pylist() == [1, 2, 3], ending

    return Case(lambda: ps.append(NEW, f"one.{endings[0]}"), advised)


def no_end_of_any() -> Case:
    return no_end("parquet", "arrow", "h5", "npz", "npy", "beton")


def end_of_numbered() -> Case:
    case = no_end("parquet")
    return case._replace(fails=lambda: ps.append(NEW, "parquet", shard="last"))


def only_read() -> Case:
    folder_of(Path("d"), {"shard.00000.mds": [1, 2]})

    def advised() -> None:
        cli("convert d b.tfrecord")
        ps.append({"text": ["t3"], "x": [3]}, "b.tfrecord")
        found = [(record["text"], record["x"]) for record in rows("b.tfrecord")]
        assert found == [("t1", 1), ("t2", 2), ("t3", 3)]

    return Case(lambda: ps.append({"text": ["t3"], "x": [3]}, "d/shard.00000.mds"), advised)


def fields_beside() -> Case:
    Path("d").mkdir()
    ps.write(OLD, "d/part-0.tfrecord")
    ps.add_fields("d/part-0.tfrecord", {"b": [10, 20]})
    more = {"a": [3], "b": [30]}

    def advised() -> None:
        ps.append(more, "d", shard="new")
        found = pa.table(ps.open("d")).select(["a", "b"]).to_pylist()
        assert found == [{"a": n, "b": 10 * n} for n in (1, 2, 3)]
        Path("d/part-1.tfrecord").unlink()
        cli("fields bake d/part-0.tfrecord --in-place")
        ps.append(more, "d/part-0.tfrecord")
        found = pa.table(ps.open("d/part-0.tfrecord")).select(["a", "b"]).to_pylist()
        assert found == [{"a": n, "b": 10 * n} for n in (1, 2, 3)]

    return Case(lambda: ps.append(more, "d/part-0.tfrecord"), advised)


def zlib_file() -> Case:
    ps.write(OLD, "part-0.tfrecord", compression="zlib")

    def advised() -> None:
        ps.append(NEW, "part-*.tfrecord", shard="new")
        assert rows("part-*.tfrecord") == BOTH
        cli("convert part-0.tfrecord b.tfrecord.gz --compression gzip")
        ps.append(NEW, "b.tfrecord.gz")
        assert rows("b.tfrecord.gz") == BOTH

    return Case(lambda: ps.append(NEW, "part-0.tfrecord"), advised)


def one_array() -> Case:
    Path("part-0.msgpack").write_bytes(b"\x92\x81\xa1a\x01\x81\xa1a\x02")
    assert rows("part-0.msgpack") == BOTH[:2]

    def advised() -> None:
        ps.append(NEW, "part-*.msgpack", shard="new")
        assert rows("part-*.msgpack") == BOTH
        cli("convert part-0.msgpack b.msgpack")
        ps.append(NEW, "b.msgpack")
        assert rows("b.msgpack") == BOTH

    return Case(lambda: ps.append(NEW, "part-0.msgpack"), advised)


def field_left_out() -> Case:
    ps.write({"a": [1], "b": [2]}, "a.tfrecord")

    def advised() -> None:
        ps.append({"a": [3], "b": pa.array([None], pa.int64())}, "a.tfrecord")
        assert rows("a.tfrecord") == [{"a": 1, "b": 2}, {"a": 3, "b": None}]

    return Case(lambda: ps.append(NEW, "a.tfrecord"), advised)


def fields_of_mds() -> Case:
    folder_of(Path("d"), {"shard.00000.mds": [1, 2]})
    return beside_or_elsewhere({"x": [1, 2], "b": [10, 20]})


def fields_of_images() -> Case:
    images = ps.encode_images(np.zeros((2, 2, 2, 3), np.uint8), "png")
    ps.write({"image": images, "n": [1, 2]}, "d", format="imagefolder")
    return beside_or_elsewhere({"n": [1, 2], "b": [10, 20]})


def beside_or_elsewhere(expected: dict[str, list[int]]) -> Case:
    more = pa.table({"b": expected["b"]})

    def found(path: str) -> dict[str, list[int]]:
        return pa.table(ps.open(path)).select(list(expected)).to_pydict()

    def advised() -> None:
        ps.write(more, "more.parquet")
        cli("convert d b.tfrecord")
        cli("fields add b.tfrecord --from more.parquet --into c.tfrecord")
        assert found("c.tfrecord") == expected
        cli("fields add d --from more.parquet")
        assert found("d") == expected

    return Case(lambda: ps.add_fields("d", more, into="e"), advised)


CASES: Cases = {
    "'append to its folder for a new shard, if its name has a running number; or write another file, and open both'": (
        no_end_of_any,
        end_of_numbered,
    ),
    "'penstock convert to TFRecord, which can be appended to'": only_read,
    "\"run penstock fields bake first, or pass shard='new'\"": fields_beside,
    "'write a new shard, or use penstock convert to make a gzip file, which can be appended to'": zlib_file,
    "'write a new shard, or use penstock convert to make a file of consecutive maps'": one_array,
    "'add it, with null for missing values'": field_left_out,
    "'penstock fields add without --into or --in-place stores new fields next to them; penstock convert writes another format'": (
        fields_of_mds,
        fields_of_images,
    ),
}
