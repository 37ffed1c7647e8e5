"""Records are appended to a set of objects as a new shard; nothing is added to the end of an object."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import penstock as ps
from remote.servers.seaweed import Seaweed


@pytest.fixture
def options(seaweed: Seaweed) -> dict[str, Any]:
    return {"storage_options": seaweed.options()}


@pytest.mark.parametrize("ending", ["tfrecord", "tfrecord.gz", "parquet", "tar", "arrow", "rec"])
def test_records_become_the_next_shard(ending: str, options: dict[str, Any], prefix: str) -> None:
    column = "jpg" if ending == "tar" else "data" if ending == "rec" else "name"
    key = {"__key__": ["a", "b"]} if ending == "tar" else {}
    target = f"s3://{prefix}/x-{{shard:05d}}.{ending}"
    ps.write({**key, column: [b"one", b"two"]}, target, shard_records=1, **options)
    pattern = f"s3://{prefix}/x-*.{ending}"
    more = {"__key__": ["c"]} if ending == "tar" else {}
    made = ps.append({**more, column: [b"three"]}, pattern, **options)
    assert made.paths == (f"s3://{prefix}/x-00002.{ending}",)
    assert made.num_records == 1
    found = ps.open(pattern, **options).to_table()[column].to_pylist()
    assert found == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    "target", ["s3://{p}/in/", "s3://{p}/in", "s3://{p}/in/x-{shard}.tfrecord"]
)
def test_a_folder_or_a_pattern_of_names_takes_a_new_shard(
    target: str, options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    ps.write(
        {"id": [1, 2]}, f"s3://{prefix}/in/x-{{shard:05d}}.tfrecord", shard_records=1, **options
    )
    target = target.replace("{p}", prefix)
    ps.append({"id": [3, 4]}, target, **options)
    ps.append({"id": [5]}, target, **options)
    ds = ps.open(f"s3://{prefix}/in/", **options)
    assert ds.to_table()["id"].to_pylist() == [1, 2, 3, 4, 5]
    bucket, _, folder = prefix.partition("/")
    keys = seaweed.client.keys(bucket, f"{folder}/in/")
    assert f"{folder}/in/.x-00003.tfrecord.penstock" in keys, "the new shard has an index"


def test_one_object_takes_no_records(
    options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    ps.write({"id": [1, 2]}, f"s3://{prefix}/x-{{shard:05d}}.tfrecord", shard_records=1, **options)
    before = seaweed.client.get(f"{prefix}/x-00001.tfrecord")
    with pytest.raises(ps.UnsupportedError, match="a store cannot add to the end") as raised:
        ps.append({"id": [3]}, f"s3://{prefix}/x-00001.tfrecord", **options)
    assert "new shard" in (raised.value.hint or "")
    with pytest.raises(ps.UnsupportedError, match="a store cannot add to the end"):
        ps.append({"id": [3]}, f"s3://{prefix}/x-*.tfrecord", shard="last", **options)
    assert seaweed.client.get(f"{prefix}/x-00001.tfrecord") == before


def test_names_with_a_number_of_shards_take_none(options: dict[str, Any], prefix: str) -> None:
    ps.write({"id": [1, 2]}, f"s3://{prefix}/x.tfrecord", num_shards=2, **options)
    with pytest.raises(ValueError, match="number of shards") as raised:
        ps.append({"id": [3]}, f"s3://{prefix}/x-*.tfrecord", **options)
    assert "shard='last'" not in str(raised.value)


def test_records_that_do_not_fit_leave_nothing(
    options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    ps.write({"id": [1, 2]}, f"s3://{prefix}/x-{{shard:05d}}.tfrecord", shard_records=1, **options)
    bucket, _, folder = prefix.partition("/")
    before = seaweed.client.keys(bucket, folder)
    for wrong in ({"id": ["text"]}, {"other": [1]}):
        with pytest.raises(ps.SchemaError):
            ps.append(wrong, f"s3://{prefix}/x-*.tfrecord", **options)
    assert (
        ps.append({"id": np.zeros(0, np.int64)}, f"s3://{prefix}/x-*.tfrecord", **options).paths
        == ()
    )
    assert seaweed.client.keys(bucket, folder) == before


def test_appends_at_the_same_time_make_a_shard_each(options: dict[str, Any], prefix: str) -> None:
    ps.write({"id": [0]}, f"s3://{prefix}/x-{{shard:05d}}.tfrecord", shard_records=1, **options)
    pattern = f"s3://{prefix}/x-*.tfrecord"
    threads = [
        threading.Thread(target=ps.append, args=({"id": [n]}, pattern), kwargs=options)
        for n in range(1, 6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ds = ps.open(pattern, **options)
    assert len(ds.paths) == 6
    assert sorted(ds.to_table()["id"].to_pylist()) == list(range(6))


def test_nothing_is_appended_on_a_web_server() -> None:
    with pytest.raises(ps.UnsupportedError, match="does not write to web servers"):
        ps.append({"id": [1]}, "https://127.0.0.1/x.tfrecord")
