"""Fields of objects are added, dropped, renamed and replaced, beside the objects or into new ones."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage.objects import ObjectStorage
from remote.servers.seaweed import SECRET, Seaweed

COUNT = 600
SHARDS = 3


@pytest.fixture
def options(seaweed: Seaweed) -> dict[str, Any]:
    """How the store is reached. Nothing is in the environment, so each verb has to pass it on."""
    return {"storage_options": seaweed.options()}


@pytest.fixture(params=["tfrecord", "parquet"])
def url(request: pytest.FixtureRequest, options: dict[str, Any], prefix: str) -> str:
    """Three shards in a store."""
    ending = request.param
    table = pa.table({"id": range(COUNT), "text": [f"record {n}" * (n % 7) for n in range(COUNT)]})
    ps.write(table, f"s3://{prefix}/x.{ending}", num_shards=SHARDS, **options)
    return f"s3://{prefix}/x-*.{ending}"


def keys(seaweed: Seaweed, prefix: str) -> list[str]:
    bucket, _, folder = prefix.partition("/")
    return [key.removeprefix(folder).lstrip("/") for key in seaweed.client.keys(bucket, folder)]


def test_an_overlay_lies_beside_each_object_and_is_read_with_it(
    url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    before = {key: seaweed.client.get(f"{prefix}/{key}") for key in keys(seaweed, prefix)}
    scores = np.arange(COUNT) / 2
    made = ps.add_fields(url, {"score": scores}, **options)
    assert made.num_records == COUNT and len(made.paths) == SHARDS
    new = set(keys(seaweed, prefix)) - set(before)
    assert len([key for key in new if ".penstock-fields/score.overlay" in key]) == SHARDS
    data = [key for key in before if not key.startswith(".")]
    assert len(data) == SHARDS
    for key in data:
        body = before[key]
        assert seaweed.client.get(f"{prefix}/{key}") == body
    ds = ps.open(url, **options)
    assert ds.to_table()["score"].to_pylist() == scores.tolist()
    assert ds[COUNT - 1]["score"] == scores[-1]
    found = ps.overlays(url, **options)
    assert [(one.name, len(one.shards)) for one in found] == [("score", SHARDS)]


def test_overlays_in_another_folder_leave_the_bucket_alone(
    url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed, tmp_path: Path
) -> None:
    before = {key: seaweed.client.get(f"{prefix}/{key}") for key in keys(seaweed, prefix)}
    there = f"s3://{prefix.partition('/')[0]}/mine-of-{prefix.partition('/')[2]}"
    scores = np.arange(COUNT) / 2
    for folder in (str(tmp_path / "mine"), there):
        ps.add_fields(url, {"score": scores}, overlays=folder, **options)
        ds = ps.open(url, overlays=folder, **options)
        assert ds.to_table()["score"].to_pylist() == scores.tolist()
        assert ps.verify(url, overlays=folder, **options).ok
        assert ps.open(url, **options).schema.names == ["id", "text"]
        assert len(ps.remove_overlay(url, "score", overlays=folder, **options)) == SHARDS
        assert ps.overlays(ds) == []
    assert {key: seaweed.client.get(f"{prefix}/{key}") for key in keys(seaweed, prefix)} == before


def test_overlays_of_a_dataset_that_stays_open_are_seen(url: str, options: dict[str, Any]) -> None:
    ds = ps.open(url, **options)
    ps.add_fields(ds, {"a": 1})
    ps.add_fields(ds, {"a": 2}, overwrite=True)
    assert [one.name for one in ps.overlays(ds)] == ["a"]
    assert set(ps.open(url, **options).to_table()["a"].to_pylist()) == {2}
    removed = ps.remove_overlay(ds, "a")
    assert len(removed) == SHARDS
    assert ps.overlays(ds) == []
    with pytest.raises(ValueError, match="there are: none"):
        ps.remove_overlay(ds, "a")


def test_fields_are_dropped_renamed_and_replaced_beside_objects(
    url: str, options: dict[str, Any]
) -> None:
    ps.drop_fields(url, "text", **options)
    ps.rename_fields(url, {"id": "number"}, **options)
    ps.replace_fields(url, {"number": list(range(COUNT, 0, -1))}, where="number < 10", **options)
    found = ps.open(url, **options).to_table()
    assert found.column_names == ["number"]
    assert found["number"].to_pylist()[:11] == [*range(COUNT, COUNT - 10, -1), 10]


def test_the_overlay_of_an_object_that_was_replaced_is_refused(
    url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    ps.add_fields(url, {"score": np.arange(COUNT)}, **options)
    ending = url.rpartition(".")[2]
    shard = f"{prefix}/x-00001-of-0000{SHARDS}.{ending}"
    first = COUNT // SHARDS
    other = {"id": range(first + 7, 2 * first + 7), "text": ["other"] * first}
    ps.write(pa.table(other), f"s3://{shard}", overwrite=True, **options)
    with pytest.raises(ps.StaleIndexError) as raised:
        ps.open(url, **options).to_table()
    assert raised.value.file == f"s3://{shard}"
    assert "fields remove" in (raised.value.hint or "")
    report = ps.verify(url, **options)
    assert [(one.kind, one.file) for one in report.findings] == [("stale_overlay", f"s3://{shard}")]
    assert len(ps.open(url, overlays=False, **options).to_table()) == COUNT
    ps.remove_overlay(url, "score", **options)
    assert ps.open(url, **options).schema.names == ["id", "text"]


def test_a_change_that_a_sample_of_the_bytes_does_not_show_makes_an_overlay_stale(
    options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    values = np.zeros(1_000_000, "<i8")
    ps.write({"data": values}, f"s3://{prefix}/x.npy", **options)
    ps.add_fields(f"s3://{prefix}/x.npy", {"score": np.arange(len(values))}, **options)
    assert ps.open(f"s3://{prefix}/x.npy", **options)[7]["score"] == 7
    body = bytearray(seaweed.client.get(f"{prefix}/x.npy"))
    body[8000:8008] = np.array([1], "<i8").tobytes()
    seaweed.client.put(f"{prefix}/x.npy", bytes(body))
    with pytest.raises(ps.StaleIndexError):
        ps.open(f"s3://{prefix}/x.npy", **options)[7]


def test_an_overlay_comes_along_when_object_and_overlay_are_copied(
    url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed, tmp_path: Path
) -> None:
    ps.add_fields(url, {"score": np.arange(COUNT)}, **options)
    for key in keys(seaweed, prefix):
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_bytes(seaweed.client.get(f"{prefix}/{key}"))
    here = str(tmp_path / url.rpartition("/")[2])
    assert ps.open(here).to_table()["score"].to_pylist() == list(range(COUNT))


def test_an_overlay_that_exists_is_not_overwritten(url: str, options: dict[str, Any]) -> None:
    ps.add_fields(url, {"score": np.arange(COUNT)}, **options)
    ps.add_fields(url, {"score": np.arange(COUNT)}, **options)  # the same is no change
    with pytest.raises(FileExistsError, match="overwrite=True"):
        ps.add_fields(url, {"score": np.arange(COUNT) + 1}, **options)


def test_overlays_of_a_folder_are_found_by_one_listing(
    options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    count = 40
    ps.write({"id": range(count)}, f"s3://{prefix}/x.tfrecord", num_shards=count, **options)
    numbered = f"s3://{prefix}/x@{count}.tfrecord"
    ps.add_fields(numbered, {"score": np.arange(count)}, **options)
    storage = ObjectStorage(seaweed.options())
    assert len(ps.overlays(numbered, storage=storage)[0].shards) == count
    # A listing, an overlay each, and the first shard, which is begun.
    assert storage.store(numbered)[0].stats()["requests"] <= count + 2
    assert ps.open(numbered, **options).to_table()["score"].to_pylist() == list(range(count))


def test_fields_are_added_from_anywhere_to_anywhere(
    url: str, options: dict[str, Any], prefix: str, tmp_path: Path, seaweed: Seaweed
) -> None:
    target = {"target_storage_options": seaweed.options()}
    scores = np.arange(COUNT) / 4
    made = ps.add_fields(url, {"score": scores}, into=f"s3://{prefix}/new/", **options, **target)
    assert made.num_records == COUNT and len(made.paths) == SHARDS
    again = ps.open(f"s3://{prefix}/new/", **options)
    assert again.to_table()["score"].to_pylist() == scores.tolist()
    assert (
        again.to_table()["text"].to_pylist()
        == ps.open(url, **options).to_table()["text"].to_pylist()
    )

    here = tmp_path / "here"
    ps.add_fields(url, {"score": scores}, into=f"{here}/", verify=True, **options)
    assert ps.open(here).to_table() == again.to_table()

    back = f"s3://{prefix}/back-{{shard:05d}}{Path(url).suffix}"
    ps.add_fields(here, {"twice": scores * 2}, into=back, verify=True, **target)
    found = ps.open(f"s3://{prefix}/back-*", **options).to_table()
    assert found["twice"].to_pylist() == (scores * 2).tolist()
    assert found.drop_columns(["twice"]) == again.to_table()


def test_fields_are_dropped_renamed_replaced_and_baked_into_new_objects(
    url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    both = options | {"target_storage_options": seaweed.options()}
    ps.drop_fields(url, "text", into=f"s3://{prefix}/a/", **both)
    ps.rename_fields(f"s3://{prefix}/a/", {"id": "number"}, into=f"s3://{prefix}/b/", **both)
    ps.replace_fields(f"s3://{prefix}/b/", {"number": 7}, into=f"s3://{prefix}/c/", **both)
    ps.add_fields(f"s3://{prefix}/c/", {"score": np.arange(COUNT)}, **options)
    ps.bake_fields(f"s3://{prefix}/c/", into=f"s3://{prefix}/d/", **both)
    assert ps.overlays(f"s3://{prefix}/d/", **options) == []
    found = ps.open(f"s3://{prefix}/d/", **options).to_table()
    assert found.to_pydict() == {"number": [7] * COUNT, "score": list(range(COUNT))}


def test_new_objects_replace_others_only_if_asked(
    url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    both = options | {"target_storage_options": seaweed.options()}
    ps.add_fields(url, {"score": 1}, into=f"s3://{prefix}/a/", **both)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        ps.add_fields(url, {"score": 2}, into=f"s3://{prefix}/a/", **both)
    ps.add_fields(url, {"score": 2}, into=f"s3://{prefix}/a/", overwrite=True, **both)
    assert set(ps.open(f"s3://{prefix}/a/", **options).to_table()["score"].to_pylist()) == {2}
    with pytest.raises(ValueError, match="over itself"):
        ps.add_fields(url, {"score": 2}, into=f"s3://{prefix}/", **both)
    with pytest.raises(ps.SchemaError):
        ps.add_fields(url, {"id": 2}, into=f"s3://{prefix}/b/", **both)
    assert not [key for key in keys(seaweed, prefix) if "/.penstock-" in f"/{key}"]


def test_objects_are_not_changed_in_place(url: str, options: dict[str, Any]) -> None:
    for change in (
        lambda: ps.add_fields(url, {"score": 1}, in_place=True, **options),
        lambda: ps.drop_fields(url, "text", in_place=True, **options),
        lambda: ps.rename_fields(url, {"text": "words"}, in_place=True, **options),
        lambda: ps.replace_fields(url, {"text": "a"}, in_place=True, **options),
        lambda: ps.bake_fields(url, in_place=True, **options),
    ):
        with pytest.raises(ps.UnsupportedError, match="cannot be changed in place") as raised:
            change()
        assert "into=" in (raised.value.hint or "")


def test_a_table_in_the_same_store_is_read_with_the_same_options(
    url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    ps.write({"id": range(COUNT), "a": range(COUNT)}, f"s3://{prefix}/t.arrow", **options)
    seaweed.client.put(
        f"{prefix}/t.csv", "\n".join(["id,b", *(f"{n},{-n}" for n in range(COUNT))]).encode()
    )
    ps.add_fields(url, f"s3://{prefix}/t.arrow", by="id", **options)
    ps.add_fields(url, f"s3://{prefix}/t.csv", by="id", **options)
    found = ps.open(url, **options).to_table()
    assert found["a"].to_pylist() == list(range(COUNT))
    assert found["b"].to_pylist() == [-n for n in range(COUNT)]


KILLED = """
import json, os, signal, sys
import numpy as np
import penstock as ps

url, into, options, limit = json.loads(sys.argv[1])

def dies(records, done, total):
    if records > limit:
        os.kill(os.getpid(), signal.SIGKILL)

target = {"target_storage_options": options} if "://" in into else {}
ps.add_fields(url, {"score": np.arange(600)}, into=into, storage_options=options, progress=dies, threads=1, **target)
"""


@pytest.mark.parametrize(
    ("url", "place"),
    [("tfrecord", "store"), ("parquet", "store"), ("tfrecord", "here")],
    indirect=["url"],
)
def test_a_killed_job_goes_on_with_the_shards_that_are_missing(
    place: str, url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed, tmp_path: Path
) -> None:
    into = f"s3://{prefix}/new/" if place == "store" else f"{tmp_path}/new/"
    given = json.dumps([url, into, seaweed.options(), 2 * COUNT // SHARDS])
    done = subprocess.run([sys.executable, "-c", KILLED, given], check=False)
    assert done.returncode == -signal.SIGKILL
    calls: list[int] = []
    more: dict[str, Any] = options | (
        {"target_storage_options": seaweed.options()} if place == "store" else {}
    )
    made = ps.add_fields(
        url,
        {"score": np.arange(COUNT)},
        into=into,
        progress=lambda records, done, total: calls.append(records),
        **more,
    )
    assert calls[0] >= COUNT // SHARDS, "the first shard is not written again"
    assert made.num_records == COUNT
    ps.add_fields(url, {"score": np.arange(COUNT)}, into=f"{tmp_path}/whole/", **options)
    for path in (tmp_path / "whole").glob("x-*"):
        if place == "store":
            assert seaweed.client.get(f"{prefix}/new/{path.name}") == path.read_bytes()
        else:
            assert (tmp_path / "new" / path.name).read_bytes() == path.read_bytes()
    left = [key for key in keys(seaweed, prefix) if ".penstock-fields-" in key]
    assert left == []
    assert list(tmp_path.rglob(".penstock-fields-*.json")) == []


@pytest.mark.parametrize("url", ["parquet"], indirect=True)
def test_another_job_begins_again(
    url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    given = json.dumps([url, f"s3://{prefix}/new/", seaweed.options(), 2 * COUNT // SHARDS])
    subprocess.run([sys.executable, "-c", KILLED, given], check=False)
    assert [left.kind for left in ps.clean(f"s3://{prefix}/new", older_than=0, **options)] == [
        "journal"
    ]
    for key in keys(seaweed, prefix):
        assert SECRET.encode() not in seaweed.client.get(f"{prefix}/{key}")
    both = options | {"target_storage_options": seaweed.options()}
    ps.add_fields(url, {"other": 1}, into=f"s3://{prefix}/new/", **both)
    found = ps.open(f"s3://{prefix}/new/", **options).to_table()
    assert found.column_names == ["id", "text", "other"] and len(found) == COUNT


def test_a_record_that_cannot_be_changed_leaves_nothing(
    options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    both = options | {"target_storage_options": seaweed.options()}
    ps.write({"id": range(COUNT)}, f"s3://{prefix}/in/x.tfrecord", num_shards=SHARDS, **options)
    name = f"{prefix}/in/x-00002-of-0000{SHARDS}.tfrecord"
    body = bytearray(seaweed.client.get(name))
    body[-100] ^= 1
    seaweed.client.put(name, bytes(body))
    with pytest.raises(ps.ChecksumError) as raised:
        ps.add_fields(f"s3://{prefix}/in/", {"a": 1}, into=f"s3://{prefix}/new/", **both)
    assert raised.value.file == f"s3://{name}"
    assert [key for key in keys(seaweed, prefix) if "new/" in key] == []


def test_a_source_that_changes_meanwhile_is_an_error(
    options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    both = options | {"target_storage_options": seaweed.options()}
    url = f"s3://{prefix}/x.parquet"
    ps.write({"id": range(COUNT)}, url, **options)

    def replaced(batch: pa.RecordBatch) -> dict[str, Any]:
        ps.write({"id": range(1, COUNT + 1)}, url, overwrite=True, **options)
        return {"twice": [2 * n for n in batch["id"].to_pylist()]}

    with pytest.raises(ps.ChangedError):
        ps.add_fields(url, replaced, reads=["id"], into=f"s3://{prefix}/new.parquet", **both)
    assert "new.parquet" not in keys(seaweed, prefix)


def test_two_jobs_do_not_write_the_same_objects(
    url: str, options: dict[str, Any], prefix: str, seaweed: Seaweed
) -> None:
    both = options | {"target_storage_options": seaweed.options()}

    def second(records: int, done: int, total: int) -> None:
        with pytest.raises(BlockingIOError):
            ps.add_fields(url, {"b": 1}, into=f"s3://{prefix}/new/", **both)

    ps.add_fields(url, {"a": 1}, into=f"s3://{prefix}/new/", progress=second, **both)
    assert "b" not in ps.open(f"s3://{prefix}/new/", **options).schema.names


@pytest.fixture(params=["gs", "az", "rclone"])
def other(request: pytest.FixtureRequest) -> Iterator[tuple[str, dict[str, Any]]]:
    """A container in another store, and its options. rclone's ignores conditions."""
    fixture = {"gs": "gcs", "az": "azure", "rclone": "rclone"}[request.param]
    server: Any = request.getfixturevalue(fixture)
    if request.param == "az":
        with server.container() as name:
            yield f"az://{name}", server.options()
    else:
        options = server.gcs_options() if request.param == "gs" else server.options()
        with server.bucket() as name:
            yield f"{'gs' if request.param == 'gs' else 's3'}://{name}", options


@pytest.mark.filterwarnings("ignore:.*its locks are weak")
def test_other_stores_take_fields_and_records(other: tuple[str, dict[str, Any]]) -> None:
    folder, given = other
    both = {"storage_options": given, "target_storage_options": given}
    options = {"storage_options": given}
    ps.write({"id": range(9)}, f"{folder}/in/x-{{shard:05d}}.tfrecord", shard_records=3, **options)
    ps.append({"id": [9]}, f"{folder}/in/", **options)
    ps.add_fields(f"{folder}/in/", {"score": np.arange(10)}, **options)
    ps.bake_fields(f"{folder}/in/", into=f"{folder}/out/", **both)
    found = ps.open(f"{folder}/out/", **options).to_table()
    assert found.to_pydict() == {"id": [*range(10)], "score": [*range(10)]}
    assert len(ps.remove_overlay(f"{folder}/in/", "score", **options)) == 4
    assert ps.open(f"{folder}/in/", **options).schema.names == ["id"]
