"""Hints about object stores and web servers."""

from __future__ import annotations

import atexit
import pickle
import shutil
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fsspec.implementations.memory import MemoryFileSystem
from steps import Case, Cases

import penstock as ps
from penstock.storage import LocalStorage, MemoryStorage
from remote.servers.nginx import Nginx, nginx
from remote.servers.seaweed import Seaweed, seaweed

SERVERS = ExitStack()
atexit.register(SERVERS.close)
NAME = "a.tfrecord"


def folder() -> Path:
    return Path(SERVERS.enter_context(tempfile.TemporaryDirectory()))


@cache
def store() -> Seaweed:
    return SERVERS.enter_context(seaweed(folder()))


@cache
def bucket() -> str:
    return SERVERS.enter_context(store().bucket())


@cache
def web() -> Nginx:
    return SERVERS.enter_context(nginx(folder()))


def written(name: str = NAME) -> str:
    """A file of this machine with three records."""
    ps.write({"id": [1, 2, 3]}, name, overwrite=True)
    return name


def stored() -> str:
    """The same in a store."""
    store().client.put(f"{bucket()}/{NAME}", Path(written()).read_bytes())
    return f"s3://{bucket()}/{NAME}"


def served(name: str = NAME) -> str:
    """The same on a web server."""
    shutil.copy(written(name), web().files)
    return f"{web().endpoint}/strong/{name}"


def opened(name: str = "", **options: Any) -> ps.Dataset:
    return ps.open(name or stored(), storage_options=store().options(), **options)


def ids(data: ps.Dataset) -> list[int]:
    return data.to_table()["id"].to_pylist()


def another_scheme() -> Case:
    def advised() -> None:
        assert ids(opened()) == [1, 2, 3]
        assert ids(ps.open(served())) == [1, 2, 3]

    return Case(lambda: ps.open("ftp://host/a.tfrecord"), advised)


def wrong_credentials() -> Case:
    wrong = store().options() | {"aws_secret_access_key": "wrong"}

    def advised() -> None:
        assert ids(opened()) == [1, 2, 3]

    return Case(lambda: ps.open(stored(), storage_options=wrong), advised)


def an_object_in_memory() -> Case:
    def advised() -> None:
        assert ids(opened()) == [1, 2, 3]

    return Case(lambda: opened(mmap=True), advised)


def a_pattern_of_addresses() -> Case:
    def advised() -> None:
        assert ids(ps.open([served("a.tfrecord"), served("b.tfrecord")])) == [1, 2, 3, 1, 2, 3]

    return Case(lambda: ps.open(f"{web().endpoint}/strong/*.tfrecord"), advised)


def writing_to_a_web_server() -> Case:
    def advised() -> None:
        written()
        target = f"s3://{bucket()}/written.tfrecord"
        ps.write({"id": [4]}, target, storage_options=store().options())
        assert ids(opened(target)) == [4]

    return Case(lambda: ps.write({"id": [4]}, f"{web().endpoint}/x.tfrecord"), advised)


def fields_next_to_a_web_address() -> Case:
    name = served()

    def advised() -> None:
        ps.add_fields(name, {"b": 5}, overlays="mine")
        assert list(ps.open(name, overlays="mine"))[2] == {"id": 3, "b": 5}

    return Case(lambda: ps.add_fields(name, {"b": 5}), advised)


def changing_an_object_in_place() -> Case:
    def advised() -> None:
        target = f"s3://{bucket()}/new.tfrecord"
        options = store().options()
        ps.add_fields(
            opened(), {"score": 4}, into=target, overwrite=True, target_storage_options=options
        )
        assert opened(target)[2] == {"id": 3, "score": 4}
        ps.add_fields(target, {"more": 5}, storage_options=options, overwrite=True)
        assert opened(target)[2] == {"id": 3, "score": 4, "more": 5}

    return Case(lambda: ps.add_fields(opened(), {"score": 4}, in_place=True), advised)


def appending_to_an_object() -> Case:
    def advised() -> None:
        options, target = store().options(), f"s3://{bucket()}/set/train-{{shard:05d}}.tfrecord"
        ps.write({"id": [1]}, target, shard_records=1, overwrite=True, storage_options=options)
        pattern = f"s3://{bucket()}/set/train-*.tfrecord"
        ps.append({"id": [2]}, pattern, storage_options=options)
        ps.append({"id": [3]}, f"s3://{bucket()}/set/", storage_options=options)
        assert ids(opened(pattern)) == [1, 2, 3]

    def fails() -> None:
        ps.append({"id": [4]}, stored(), storage_options=store().options())

    return Case(fails, advised)


def a_target_in_a_store() -> Case:
    def advised() -> None:
        ps.convert(written(), "here.parquet")
        store().client.put(f"{bucket()}/here.parquet", Path("here.parquet").read_bytes())
        assert ids(opened(f"s3://{bucket()}/here.parquet")) == [1, 2, 3]

    here = LocalStorage()
    return Case(
        lambda: ps.write({"id": [1]}, f"s3://{bucket()}/here.parquet", storage=here), advised
    )


def a_folder_of_images_in_a_store() -> Case:
    pictures = ps.encode_images(np.zeros((2, 4, 4, 3), np.uint8), "png")
    data = pa.table({"image": pictures})

    def advised() -> None:
        target = f"s3://{bucket()}/pictures.tar"
        ps.write(data, target, storage_options=store().options())
        assert len(opened(target)) == 2
        ps.write(data, "pictures", format="imagefolder")
        assert len(ps.open("pictures")) == 2

    to = f"s3://{bucket()}/pictures"
    options = store().options()
    return Case(lambda: ps.write(data, to, format="imagefolder", storage_options=options), advised)


def secrets_in_a_pickle() -> Case:
    def advised() -> None:
        options = {**store().options(), "pickle_secrets": True}
        again = pickle.loads(pickle.dumps(ps.open(stored(), storage_options=options)))
        assert ids(again) == [1, 2, 3]

    return Case(lambda: pickle.dumps(opened()), advised)


def an_index_of_a_file_in_a_store() -> Case:
    def advised() -> None:
        assert ids(ps.open(written(), index=str(folder()))) == [1, 2, 3]

    return Case(lambda: len(ps.open(written(), index=f"s3://{bucket()}/indexes")), advised)


def a_cache_of_an_own_storage() -> Case:
    memory = MemoryStorage()
    ps.write({"id": [1, 2, 3]}, NAME, storage=memory)

    def advised() -> None:
        assert ids(ps.open(NAME, storage=memory)) == [1, 2, 3]
        assert ids(ps.open(stored(), storage_options=store().options(), cache="kept")) == [1, 2, 3]

    return Case(lambda: ps.open(NAME, storage=memory, cache="kept"), advised)


class Untold(MemoryFileSystem):
    """Tells only the sizes of its files."""

    cachable = False

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        told = super().info(path, **options)
        return {key: told[key] for key in ("name", "size", "type")}


def a_cache_of_files_without_states() -> Case:
    system, place = Untold(), f"memory://{folder().name}/{NAME}"
    ps.write({"id": [1, 2, 3]}, place, storage=system)

    def advised() -> None:
        assert ids(ps.open(place, storage=system)) == [1, 2, 3]

    return Case(lambda: ps.open(place, storage=system, cache="kept"), advised)


CASES: Cases = {
    "'leave out cache=; it is for names such as s3://bucket/key, and for storage= of obstore, fsspec and pyarrow'": a_cache_of_an_own_storage,
    "'leave out cache='": a_cache_of_files_without_states,
    "'a folder on this machine for the index'": an_index_of_a_file_in_a_store,
    "'names that begin with s3://, gs://, az://, abfs://, hf:// or https://'": another_scheme,
    "'credentials in the environment, or storage_options='": wrong_credentials,
    "'leave out mmap=True'": an_object_in_memory,
    "'pass the address of each file'": a_pattern_of_addresses,
    "'overlays= with a folder of yours, which stores them there'": fields_next_to_a_web_address,
    "'write to this machine, or to s3://, gs:// or az://'": writing_to_a_web_server,
    "'into= with another name writes new objects; without into= and in_place= the change is stored next to the objects, as an overlay'": changing_an_object_in_place,
    "\"append to the folder or to a pattern such as 'train-*.tfrecord', which makes a new shard\"": appending_to_an_object,
    "'write a file of another format, such as a tar, or a folder on this machine'": a_folder_of_images_in_a_store,
    "'write to a file on this machine, and upload it'": a_target_in_a_store,
    "'AWS_SECRET_ACCESS_KEY and its like in the environment, or storage_options={…, \"pickle_secrets\": True}'": secrets_in_a_pickle,
}
