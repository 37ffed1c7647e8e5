"""Hints about who reads a store, and about stores of other libraries."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from cases_stores import NAME, SERVERS, bucket, ids, served, store, stored, written
from cases_tables import without_module
from obstore.store import LocalStore, S3Store
from s3fs import S3FileSystem
from steps import Case, Cases

import penstock as ps
import penstock.tf as tf
from reading import ROOT
from remote.servers.hub import hub
from remote.servers.nginx import SIGNATURE

PLACES = ("aws_endpoint_url", "aws_allow_http", "aws_region")


def profiles(keys: str, config: str = "") -> None:
    Path("keys").write_text(keys)
    Path("config").write_text(config)


def right(name: str) -> str:
    options = store().options()
    lines = [f"{n} = {options[n]}" for n in ("aws_access_key_id", "aws_secret_access_key")]
    return "\n".join([f"[{name}]", *lines, ""])


def here(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call that finds AWS's files in the current folder."""

    def called() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("AWS_")]:
                patch.delenv(name)
            patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.path.abspath("keys"))
            patch.setenv("AWS_CONFIG_FILE", os.path.abspath("config"))
            return call()

    return called


def opened(**options: Any) -> list[int]:
    place = {name: store().options()[name] for name in PLACES}
    return ids(ps.open(stored(), storage_options=place | options))


def no_such_profile() -> Case:
    profiles(right("dev"))

    def advised() -> None:
        assert opened(aws_profile="dev") == [1, 2, 3]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_PROFILE", "dev")
            assert opened() == [1, 2, 3]

    return Case(here(lambda: opened(aws_profile="other")), here(advised))


def no_file_of_profiles() -> Case:
    profiles("secret\n")

    def advised() -> None:
        profiles(right("default"))
        assert opened() == [1, 2, 3]

    return Case(here(opened), here(advised))


def a_profile_without_login() -> Case:
    lines = ["sso_start_url = https://x.example", "sso_region = us-east-1", "sso_role_name = r"]
    config = "\n".join(["[profile dev]", *lines, "sso_account_id = 1", ""])
    profiles(right("plain"), config)

    def advised() -> None:
        assert opened(aws_profile="plain") == [1, 2, 3]

    return Case(here(lambda: opened(aws_profile="dev")), here(advised))


def extra(name: str) -> list[str]:
    """What `pip install 'penstock[name]'` installs."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return [line.split(">")[0] for line in wanted["project"]["optional-dependencies"][name]]


def a_program_without_botocore() -> Case:
    program = f"{sys.executable} {os.path.abspath('program.py')}"
    profiles("", f"[profile dev]\ncredential_process = {program}\n")
    keys = store().options()
    facts = {
        "Version": 1,
        "AccessKeyId": keys["aws_access_key_id"],
        "SecretAccessKey": keys["aws_secret_access_key"],
    }
    Path("program.py").write_text(f"import json\nprint(json.dumps({facts}))\n")

    def without() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "botocore", None)
            opened(aws_profile="dev")

    def advised() -> None:
        assert extra("aws") == ["botocore"]
        assert opened(aws_profile="dev") == [1, 2, 3]

    return Case(here(without), here(advised))


def a_fork_with_a_library() -> Case:
    options = store().options()
    system = S3FileSystem(
        key=options["aws_access_key_id"],
        secret=options["aws_secret_access_key"],
        endpoint_url=options["aws_endpoint_url"],
    )
    ds = ps.open(stored(), storage=system)
    assert ids(ds) == [1, 2, 3]

    def advised() -> None:
        assert in_a_child(ps.open(stored(), storage_options=options), "fork") is None
        assert in_a_child(ds, "spawn") is None

    def forked() -> None:
        error = in_a_child(ds, "fork")
        if error is not None:
            raise error

    return Case(forked, advised)


def in_a_child(ds: ps.Dataset, method: str) -> Exception | None:
    """The error of a child process that reads, if there is one."""
    context: Any = multiprocessing.get_context(method)
    place = context.SimpleQueue()
    child = context.Process(target=read_all, args=(ds, place))
    child.start()
    error = place.get()
    child.join()
    return error


def read_all(ds: ps.Dataset, place: Any) -> None:
    try:
        assert ds.to_table()["id"].to_pylist() == [1, 2, 3]
    except Exception as error:
        place.put(error)
    else:
        place.put(None)


def secrets_of_a_library() -> Case:
    options = store().options()
    place: dict[str, Any] = {
        "endpoint": options["aws_endpoint_url"],
        "region": options["aws_region"],
    }
    keys: dict[str, Any] = {
        name: options[f"aws_{name}"] for name in ("access_key_id", "secret_access_key")
    }
    http: dict[str, Any] = {"client_options": {"allow_http": True}}
    secret: Any = S3Store(bucket(), **place, **keys, **http)

    def advised() -> None:
        bare = S3Store(bucket(), **place, **http)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in keys.items():
                patch.setenv(f"AWS_{name.upper()}", value)
            assert ids(pickle.loads(pickle.dumps(ps.open(NAME, storage=bare)))) == [1, 2, 3]
        named = ps.open(stored(), storage_options={**options, "pickle_secrets": True})
        assert ids(pickle.loads(pickle.dumps(named))) == [1, 2, 3]

    def secrets_of_s3fs() -> None:
        system = S3FileSystem(
            key=keys["access_key_id"],
            secret=keys["secret_access_key"],
            endpoint_url=place["endpoint"],
        )
        pickle.dumps(ps.open(stored(), storage=system))

    with pytest.raises(ps.UnsupportedError):
        pickle.dumps(ps.open(NAME, storage=secret))
    return Case(secrets_of_s3fs, advised)


def a_folder_of_obstore() -> Case:
    Path("d").mkdir()
    written("d/a.tfrecord")

    def advised() -> None:
        assert ids(ps.open("d/a.tfrecord")) == [1, 2, 3]

    return Case(lambda: ps.open(NAME, storage=LocalStore(os.path.abspath("d"))), advised)


def on_hub() -> str:
    """A data set on the tests' own hub. Its address is in the environment, as the hub's client takes it."""
    server = SERVERS.enter_context(hub())
    os.environ |= server.environment()
    server.put("some/set", {NAME: Path(written()).read_bytes()})
    return f"hf://datasets/some/set/{NAME}"


def a_data_set_without_its_client() -> Case:
    name = on_hub()

    def advised() -> None:
        assert extra("hf") == ["huggingface_hub"]
        assert ids(ps.open(name)) == [1, 2, 3]

    return Case(without_module("huggingface_hub", lambda: ps.open(name)), advised)


def writing_to_the_hub() -> Case:
    name = on_hub()

    def advised() -> None:
        assert ids(ps.open(written())) == [1, 2, 3]
        assert callable(huggingface_hub.HfApi().upload_file)

    return Case(lambda: ps.write({"id": [1]}, name, overwrite=True), advised)


def with_options(call: Callable[[], Any]) -> Callable[[], Any]:
    """A call that finds the store in the environment."""

    def called() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in store().options().items():
                patch.setenv(name.upper(), value)
            return call()

    return called


def a_mode_of_gfile() -> Case:
    name = stored().replace(NAME, "lines.txt")

    def advised() -> None:
        gfile = tf.io.gfile
        with gfile.GFile(name, "w") as file:
            file.write("one")
        gfile.copy(name, name + "2")
        gfile.remove(name)
        assert gfile.GFile(name + "2").read() == "one"

    return Case(
        with_options(lambda: tf.io.gfile.GFile(name, "a").write("x")), with_options(advised)
    )


def a_file_that_must_be_here() -> Case:
    name = stored()

    def advised() -> None:
        tf.io.gfile.copy(name, "here.tfrecord")
        assert len(list(tf.python_io.tf_record_iterator("here.tfrecord"))) == 3

    def fails() -> None:
        list(tf.python_io.tf_record_iterator(name))

    return Case(with_options(fails), with_options(advised))


def a_signed_name_in_a_pickle() -> Case:
    address = served()
    signed = address.replace("/strong/", "/signed/") + f"?sig={SIGNATURE}"

    def advised() -> None:
        ways: list[tuple[str, dict[str, Any]]] = [(address, {}), (signed, {"pickle_secrets": True})]
        for name, options in ways:
            again = pickle.loads(pickle.dumps(ps.open(name, storage_options=options)))
            assert ids(again) == [1, 2, 3]

    return Case(lambda: pickle.dumps(ps.open(signed)), advised)


def names_of_files_that_become_the_same() -> Case:
    images = [ps.encode_images(np.zeros((1, 2, 2, 3), np.uint8), "png")[0].as_py()] * 2

    def advised() -> None:
        ps.write({"image": images, "file_name": ["a.png", "b.png"]}, "b", format="imagefolder")
        ps.write({"image": images}, "c", format="imagefolder")
        assert [len(ps.open(name)) for name in "bc"] == [2, 2]

    table = {"image": images, "file_name": ["a.png", "a.png"]}
    hint = "other names, or without the column 'file_name': the files are then numbered"
    return Case(lambda: ps.write(table, "a", format="imagefolder"), advised, hint)


CASES: Cases = {
    "f'other names, or without the column {FILE_NAME!r}: the files are then numbered'": names_of_files_that_become_the_same,
    "'names without a signature, or storage_options={\"pickle_secrets\": True}'": a_signed_name_in_a_pickle,
    "'tf.io.gfile.copy and remove, or a new file'": a_mode_of_gfile,
    "'copy the file to this machine with tf.io.gfile.copy'": a_file_that_must_be_here,
    "\"pip install 'penstock[hf]'\"": a_data_set_without_its_client,
    "'write to this machine, and upload the files with the tools of the hub'": writing_to_the_hub,
    "\"the start method 'spawn', or names such as s3://bucket/key without storage=\"": a_fork_with_a_library,
    "'keys in the environment, or s3://bucket/key with storage_options= instead of storage='": secrets_of_a_library,
    "'the path of the files, without storage='": a_folder_of_obstore,
    "\"AWS_PROFILE or storage_options={'aws_profile': …} with the name of another profile\"": no_such_profile,
    "'`[name]` lines and `key = value` lines only'": no_file_of_profiles,
    "'`aws sso login`, or another profile'": a_profile_without_login,
    "\"pip install 'penstock[aws]'\"": a_program_without_botocore,
}
