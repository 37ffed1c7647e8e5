"""`clean` finds what killed processes left in a store, in the API and on the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import penstock as ps
from penstock.storage import _object_left, store_lock
from penstock.storage.objects import ObjectStorage
from remote.servers.azure import Azure
from remote.servers.seaweed import Seaweed

botocore = pytest.importorskip("botocore", reason="finds uploads without a note")


@pytest.fixture
def place(prefix: str, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with data, whose store is in the environment."""
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)
    ps.write({"id": [1, 2]}, f"s3://{prefix}/a.tfrecord")
    return f"s3://{prefix}"


def begin_upload(place: str, options: dict[str, str], name: str = "x.tfrecord") -> None:
    """Begin an upload that nobody ends."""
    store, key = ObjectStorage(options).store(f"{place}/{name}")
    store.upload(key).part(0, b"data")


class StoppedError(Exception):
    pass


def begin_job(place: str) -> None:
    def progress(done: int, *_: int) -> None:
        if done > 1:
            raise StoppedError

    with pytest.raises(StoppedError):
        ps.convert(f"{place}/a.tfrecord", f"{place}/b.parquet", num_shards=2, progress=progress)


def note(place: str, options: dict[str, str], name: str = "y.tfrecord") -> None:
    """Begin an upload as a sink does, and be killed."""
    storage = ObjectStorage(options)
    store, key = storage.store(f"{place}/{name}")
    upload = store.upload(key)
    facts = {"name": name, "upload": upload.id}
    storage.save(f"{place}/.{name}.0123456789ab.penstock-tmp", json.dumps(facts).encode())
    upload.part(0, b"data")


def test_uploads_and_journals_are_listed_and_removed(place: str, seaweed: Seaweed) -> None:
    options = seaweed.options()
    bucket, _, folder = place.removeprefix("s3://").partition("/")
    begin_upload(place, options)
    begin_upload(place, options, "below/x.tfrecord")
    note(place, options)
    begin_job(place)
    found = ps.clean(place, older_than=0)
    names = [left.path[len(place) + 1 :].partition("-convert-")[0] for left in found]
    assert list(zip(names, (left.kind for left in found), strict=True)) == [
        (".penstock", "journal"), (".y.tfrecord.0123456789ab.penstock-tmp", "upload"),
        ("x.tfrecord", "upload"),
    ]  # fmt: skip
    assert len(seaweed.client.uploads(bucket)) >= 3
    assert all(left.is_removed for left in ps.clean(place, older_than=0, remove=True))
    keys = [key[len(folder) + 1 :] for key in seaweed.client.keys(bucket, f"{folder}/")]
    assert sorted(k for k in keys if k and not k.endswith("/")) == [
        ".a.tfrecord.penstock", "a.tfrecord", "b-00000-of-00002.parquet",
    ]  # fmt: skip
    ours = [key for key in seaweed.client.uploads(bucket) if key.startswith(folder)]
    assert ours == [f"{folder}/below/x.tfrecord"]
    assert ps.clean(place, older_than=0) == []


def test_without_botocore_notes_are_found(
    place: str, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(place, seaweed.options())
    begin_upload(place, seaweed.options())
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    (found,) = ps.clean(place, older_than=0)
    assert found.kind == "upload"
    assert found.path == f"{place}/.y.tfrecord.0123456789ab.penstock-tmp"
    ps.clean(place, older_than=0, remove=True)
    monkeypatch.undo()
    storage = ObjectStorage(seaweed.options())
    (other,) = storage.leftovers(place)
    assert other.path == f"{place}/x.tfrecord"


def test_young_uploads_and_running_jobs_stay(place: str, seaweed: Seaweed) -> None:
    note(place, seaweed.options())
    assert ps.clean(place, remove=True) == []
    found: list[ps.Left] = []

    def progress(*_: int) -> None:
        found.extend(ps.clean(place, older_than=0, remove=True))

    ps.convert(f"{place}/a.tfrecord", f"{place}/b.parquet", num_shards=2, progress=progress)
    assert {left.kind for left in found} == {"upload"}
    assert len(ps.open(f"{place}/b@2.parquet")) == 2


def test_a_lock_of_another_machine_counts_for_two_minutes(
    place: str, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_job(place)
    (journal,) = ps.clean(place, older_than=0)
    seaweed.client.put(
        f"{journal.path.removeprefix('s3://')}/lock-00000.json",
        json.dumps({"holder": "0" * 32}).encode(),
    )
    assert ps.clean(place, older_than=0) == []
    monkeypatch.setattr(_object_left, "STALE_SECONDS", -1)
    monkeypatch.setattr(store_lock, "STALE_SECONDS", -1)
    assert len(ps.clean(place, older_than=0, remove=True)) == 1


def test_the_command(place: str, seaweed: Seaweed) -> None:
    note(place, seaweed.options())
    command = [sys.executable, "-m", "penstock", "clean", place, "--older-than", "0"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    (left,) = json.loads(done.stdout)["leftovers"]
    assert (left["kind"], left["removed"]) == ("upload", False)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "upload" in done.stdout
    assert "--remove" in done.stderr
    done = subprocess.run([*command, "--remove"], capture_output=True, text=True, check=True)
    assert "removed" in done.stdout
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "nothing was left" in done.stderr


def test_other_stores(azure: Azure, container: str) -> None:
    options = azure.options()
    storage = ObjectStorage(options)
    storage.save(f"az://{container}/d/.x.0123456789ab.penstock-tmp", b"{}")
    (found,) = ps.clean(f"az://{container}/d/", older_than=0, remove=True, storage_options=options)
    assert found.kind == "upload"
    assert ps.clean(f"az://{container}/d/", older_than=0, storage_options=options) == []


def test_a_web_server_is_not_cleaned() -> None:
    with pytest.raises(ps.UnsupportedError):
        ps.clean("https://example.invalid/data/")
