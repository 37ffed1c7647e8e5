"""Every verb and command takes the options of the store that it reads or writes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import penstock as ps
from cli.running import run
from penstock.cli.program import program
from remote.servers.nginx import Nginx
from remote.servers.seaweed import KEY_ID, SECRET, Seaweed

COUNT = 120
SHARDS = 3
PUBLIC = Path(ps.__file__).with_name("__init__.pyi").read_text()

SOURCES = {"source", "a", "b", "path"}
"""What verbs call the data that they read; `write` calls its target a path."""
TARGETS = {"into", "target"}


def verbs() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The public functions that take the name of data, or of new files."""
    for name in re.findall(r"(\w+) as \1\b", PUBLIC):
        found = getattr(ps, name)
        inside = vars(found) if inspect.ismodule(found) and name == "bench" else {name: found}
        for name, function in inside.items():
            if inspect.isfunction(function) and not name.startswith("_"):
                takes = set(inspect.signature(function).parameters)
                if takes & (SOURCES | TARGETS):
                    yield name, function


@pytest.mark.parametrize(("name", "function"), [*verbs()], ids=[name for name, _ in verbs()])
def test_each_verb_takes_a_storage_and_its_options(name: str, function: Callable[..., Any]) -> None:
    takes = set(inspect.signature(function).parameters)
    assert {"storage", "storage_options"} <= takes
    if takes & SOURCES and takes & TARGETS:
        assert {"target_storage", "target_storage_options"} <= takes


def commands() -> Iterator[tuple[str, click.Command]]:
    def below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        if not isinstance(command, click.Group):
            yield name, command
            return
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None
            yield from below(f"{name} {word}".strip(), inner)

    yield from below("", program)


@pytest.mark.parametrize(("name", "command"), [*commands()], ids=[name for name, _ in commands()])
def test_each_command_with_data_takes_options_of_stores(name: str, command: click.Command) -> None:
    arguments = {one.name for one in command.params if isinstance(one, click.Argument)}
    options = {word for one in command.params for word in one.opts}
    if arguments & {"source", "file", "a", "folder"} and name != "cache":
        assert "--storage-option" in options
    if arguments & {"source"} and (arguments & {"target"} or "--into" in options):
        assert "--target-storage-option" in options


@pytest.fixture
def url(seaweed: Seaweed, prefix: str) -> str:
    table = {"id": np.arange(COUNT), "text": [f"record {n}" for n in range(COUNT)]}
    options = seaweed.options()
    ps.write(table, f"s3://{prefix}/x.tfrecord", num_shards=SHARDS, storage_options=options)
    return f"s3://{prefix}/x@{SHARDS}.tfrecord"


@pytest.fixture
def words(seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`--storage-option` for the store, whose secret is in a file and whose key is in the environment."""
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    monkeypatch.setenv("MY_KEY", KEY_ID)
    given = seaweed.options() | {
        "aws_secret_access_key": f"@{tmp_path / 'secret'}",
        "aws_access_key_id": "env:MY_KEY",
    }
    return [word for name in given for word in ("--storage-option", f"{name}={given[name]}")]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("info {url}", f"{COUNT}"),
        ("head {url} -n 2", "record 1"),
        ("schema {url}", "compared all 3 files"),
        ("stats {url}", f"{COUNT} records"),
        ("verify {url}", f"{COUNT} records intact"),
        ("layout {shard}", "masked crc32c"),
        ("index --force {url}", ".x-00000-of-00003.tfrecord.penstock"),
        ("diff {url} {url}", f"equal: {COUNT} records"),
        ("plan {url} --batch-size 8", "batches"),
        ("bench shuffle {url} --rounds 1 --seconds 0.1", "Shuffled"),
        ("fields list {url}", "no fields are stored"),
        ("fields add {url} --set a=1", f"{COUNT} records"),
        ("convert {url} {here}", f"{COUNT} records"),
    ],
)
def test_commands_read_a_store(
    command: str, said: str, url: str, words: list[str], tmp_path: Path
) -> None:
    shard = url.replace(f"@{SHARDS}", f"-00000-of-0000{SHARDS}")
    asked = command.format(url=url, shard=shard, here=tmp_path / "here.parquet").split()
    done = run(*asked, *words)
    assert done.status == 0, done.err
    assert said in done.out + done.err
    assert SECRET not in done.out + done.err


def test_commands_change_fields_in_a_store(url: str, words: list[str], prefix: str) -> None:
    target = [word.replace("--storage", "--target-storage") for word in words]
    new = f"s3://{prefix}/new/"
    assert run("fields", "add", url, "--set", "a=1", *words).status == 0
    assert run("fields", "bake", url, "--into", new, *words, *target).status == 0
    assert run("fields", "remove", url, "a", *words).status == 0
    assert f"{COUNT} records" in run("verify", new, *words).out
    assert " a\n" in run("head", new, "-n", "1", *words).out
    assert run("repair", url, "--into", f"s3://{prefix}/b/", *words, *target).status == 0
    refused = run("fields", "drop", url, "text", "--in-place", *words)
    assert refused.status == 1 and "--into" in refused.err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("my-secret-key", "takes KEY=VALUE"),
        ("aws_secret_access_key=env:NO_SUCH_NAME", "no environment variable NO_SUCH_NAME"),
        ("aws_secret_access_key=@no-such-file", "no-such-file: No such file"),
    ],
)
def test_a_wrong_option_is_misuse_and_is_not_shown(option: str, said: str) -> None:
    done = run("info", "s3://bucket/x.tfrecord", "--storage-option", option)
    assert done.status == 2
    assert said in done.err
    assert "my-secret-key" not in done.err


def test_options_for_a_dataset_that_is_open_are_refused(url: str, seaweed: Seaweed) -> None:
    ds = ps.open(url, storage_options=seaweed.options())
    for verb in (ps.info, ps.stats, ps.schemas, ps.overlays):
        with pytest.raises(TypeError, match="already open"):
            verb(ds, storage_options={"aws_region": "here"})


def test_repaired_objects_stay_in_their_folders(
    url: str, prefix: str, seaweed: Seaweed, tmp_path: Path
) -> None:
    options = seaweed.options()
    body = seaweed.client.get(f"{prefix}/x-00000-of-0000{SHARDS}.tfrecord")
    for name in ("in/a/x.tfrecord", "in/b/x.tfrecord"):
        seaweed.client.put(f"{prefix}/{name}", body)
    both: dict[str, Any] = {"storage_options": options, "target_storage_options": options}
    made = ps.repair(f"s3://{prefix}/in/", into=f"s3://{prefix}/out/", **both)
    assert made.paths == tuple(f"s3://{prefix}/out/{name}/x.tfrecord" for name in "ab")
    ps.repair(f"s3://{prefix}/in/*/x.tfrecord", into=tmp_path, storage_options=options)
    assert sorted(tmp_path.rglob("x.tfrecord")) == [
        tmp_path / "a/x.tfrecord",
        tmp_path / "b/x.tfrecord",
    ]


def test_splits_sorted_and_unique_records_go_into_a_store(
    url: str, prefix: str, seaweed: Seaweed, words: list[str]
) -> None:
    options = seaweed.options()
    both: dict[str, Any] = {"storage_options": options, "target_storage_options": options}
    shares = {"train": 0.75, "val": 0.25}
    made = ps.write_splits(url, f"s3://{prefix}/s/{{split}}-{{shard}}.tfrecord", shares, **both)
    assert [made[name].num_records for name in shares] == [COUNT * 3 // 4, COUNT // 4]
    assert made["val"].paths == (f"s3://{prefix}/s/val-00000.tfrecord",)
    assert made["val"].num_bytes == len(seaweed.client.get(f"{prefix}/s/val-00000.tfrecord"))
    parts = ps.split(url, shares, storage_options=options)
    for name, part in parts.items():
        found = ps.open(f"s3://{prefix}/s/", split=name, storage_options=options)
        assert found.to_table() == part.to_table()

    ps.sort(url, "id", descending=True, into=f"s3://{prefix}/down.parquet", **both)
    found = ps.open(f"s3://{prefix}/down.parquet", storage_options=options).to_table()
    assert found["id"].to_pylist() == [*range(COUNT)][::-1]
    twice = [f"s3://{prefix}/down.parquet"] * 2
    ps.dedupe(twice, "id", into=f"s3://{prefix}/once.arrow", num_shards=2, **both)
    found = ps.open(f"s3://{prefix}/once-*.arrow", storage_options=options).to_table()
    assert found["id"].to_pylist() == [*range(COUNT)][::-1]

    target = [word.replace("--storage", "--target-storage") for word in words]
    for line in (
        f"split {url} --into s3://{prefix}/c/{{split}}.tfrecord",
        f"sort {url} --by id --into s3://{prefix}/c/up.parquet",
        f"dedupe {url} --columns id --into s3://{prefix}/c/unique.tfrecord",
        f"convert {url} s3://{prefix}/c/all.tfrecord",
        f"convert {url} s3://{prefix}/c/some.parquet --where id<7 --num-shards 2",
        f"append {url} s3://{prefix}/s/val-{{shard}}.tfrecord",
    ):
        done = run(*line.split(), *words, *target)
        assert done.status == 0, done.err
        assert f"s3://{prefix}/" in done.out


def test_a_dataset_is_written_into_a_store(url: str, prefix: str, seaweed: Seaweed) -> None:
    options = {"storage_options": seaweed.options()}
    ps.write(ps.open(url, **options).filter("id < 7"), f"s3://{prefix}/few.tar", **options)
    found = ps.open(f"s3://{prefix}/few.tar", **options)
    assert len(found) == 7


def test_a_damaged_object_is_replaced_by_a_repaired_one_unless_it_changed(
    url: str, prefix: str, seaweed: Seaweed
) -> None:
    options = {"storage_options": seaweed.options()}
    shard = f"{prefix}/x-00001-of-0000{SHARDS}.tfrecord"
    good = seaweed.client.get(shard)
    bad = bytearray(good)
    bad[200] ^= 1
    seaweed.client.put(shard, bytes(bad))

    def replaced(records: int, done: int, total: int) -> None:
        seaweed.client.put(shard, good)

    with pytest.raises(ps.ChangedError):
        ps.repair(f"s3://{shard}", in_place=True, progress=replaced, **options)
    assert seaweed.client.get(shard) == good
    seaweed.client.put(shard, bytes(bad))
    assert not ps.repair(url, in_place=True, **options).ok
    assert ps.verify(url, **options).num_records == COUNT - 1


def test_a_signed_address_is_shown_by_no_verb(nginx: Nginx, tmp_path: Path) -> None:
    ps.write({"id": [1, 2, 3]}, nginx.files / "shown-by-no-verb.tfrecord", index=False)
    url = f"{nginx.endpoint}/strong/shown-by-no-verb.tfrecord?X-Amz-Signature=abcdef"
    into = str(tmp_path / "x.tfrecord")
    made = [
        ps.add_fields(url, {"a": 1}, into=into),
        ps.overlays(url),
        ps.index(url),
        ps.info(url),
        ps.repair(url, into=str(tmp_path / "y.tfrecord")),
    ]
    assert "abcdef" not in f"{made} {made[3]}"
    for refused in (
        lambda: ps.add_fields(url, {"a": 1}),
        lambda: ps.remove_overlay(url, "a"),
        lambda: ps.drop_fields(url, "no", into=into),
        lambda: ps.drop_fields(url, "id", in_place=True),
        lambda: ps.bake_fields(url, into=into),
        lambda: ps.add_fields(url, {"id": 1}, into=into),
        lambda: ps.append({"id": [4]}, url),
        lambda: ps.sort(url, "no", into=into),
        lambda: ps.repair(url, into=url),
        lambda: ps.dedupe(url, into=url),
    ):
        with pytest.raises((ps.PenstockError, ValueError)) as raised:
            refused()
        assert "abcdef" not in f"{raised.value} {raised.value!r} {raised.value.__cause__!r}"
    assert not [path for path in tmp_path.rglob("*") if b"abcdef" in path.read_bytes()]


def test_a_bucket_that_is_not_there_is_an_error_about_the_object(seaweed: Seaweed) -> None:
    for verb in (ps.open, ps.info, ps.stats):
        with pytest.raises(FileNotFoundError) as raised:
            verb("s3://no-such-bucket/x.tfrecord", storage_options=seaweed.options())
        assert raised.value.filename == "s3://no-such-bucket/x.tfrecord"
