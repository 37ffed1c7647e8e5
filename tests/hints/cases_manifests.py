"""Hints about manifests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from cases_stores import bucket, served, store
from steps import Case, Cases, rows

import penstock as ps
from penstock.cli.program import program
from penstock.storage.manifest_mark import KEY

NAME = "x.manifest"
RECORDS = [{"id": 1}, {"id": 2}, {"id": 3}]


def made(**options: Any) -> str:
    ps.write({"id": [1, 2, 3]}, "x.tfrecord", num_shards=2, overwrite=True)
    ps.manifest("x-*.tfrecord", NAME, overwrite=True, **options)
    return NAME


def told(change: Callable[[dict[str, Any], list[dict[str, Any]]], Any]) -> str:
    """A manifest with other facts and rows."""
    table = pq.read_table(made())
    facts = json.loads(pq.read_metadata(NAME).metadata[KEY])
    listed = table.to_pylist()
    change(facts, listed)
    with pq.ParquetWriter(NAME, table.schema.remove_metadata(), store_schema=False) as writer:
        writer.write_table(pa.Table.from_pylist(listed, table.schema.remove_metadata()))
        writer.add_key_value_metadata({KEY.decode(): json.dumps(facts)})
    return NAME


def made_again(change: Callable[[dict[str, Any], list[dict[str, Any]]], Any]) -> Case:
    name = told(change)

    def advised() -> None:
        program(["manifest", "x-00000-of-00002.tfrecord", "x-00001-of-00002.tfrecord", "-o", NAME, "--overwrite"], standalone_mode=False)  # fmt: skip

    def followed() -> None:
        try:
            advised()
        except SystemExit as done:
            assert not done.code
        assert rows(name) == RECORDS

    return Case(lambda: rows(name), followed)


def another_version() -> Case:
    return made_again(lambda facts, listed: facts.update(version=2))


def impossible_claims() -> Case:
    return made_again(lambda facts, listed: listed[0].update(bytes=-1))


def refreshed(change: Callable[[], Any]) -> Case:
    def advised() -> None:
        try:
            program(["manifest", NAME, "--refresh"], standalone_mode=False)
        except SystemExit as done:
            assert not done.code
        assert rows(NAME) == RECORDS

    made()
    change()
    hint = f"penstock manifest {NAME} --refresh"
    return Case(lambda: ps.open(NAME).take([0, 2]), advised, hint)


def a_changed_shard() -> Case:
    case = refreshed(lambda: os.utime("x-00000-of-00002.tfrecord", (1, 1)))
    return case._replace(hint=f"{case.hint}, which lists it as it is now")


def another_count() -> Case:
    def swap(facts: dict[str, Any], listed: list[dict[str, Any]]) -> None:
        del facts
        listed[0]["records"], listed[1]["records"], listed[1]["first_record"] = 1, 2, 1
        for row in listed:  # so that a refresh reads them again
            row["modified_ns"] = None
            row["etag"] = None

    def advised() -> None:
        for path in Path().glob("x-*"):
            os.utime(path)
        told_again = ps.manifest("x-*.tfrecord", NAME, overwrite=True)
        assert told_again.num_records == len(RECORDS)
        assert rows(NAME) == RECORDS

    name = told(swap)
    return Case(lambda: ps.open(name).take([0, 2]), advised, f"penstock manifest {NAME} --refresh")


def another_store() -> Case:
    made()
    table = pq.read_table(NAME)
    listed = table.to_pylist()
    listed[0]["path"] = str(Path("x-00000-of-00002.tfrecord").resolve())
    facts = pq.read_metadata(NAME).metadata[KEY]
    with pq.ParquetWriter(NAME, table.schema.remove_metadata(), store_schema=False) as writer:
        writer.write_table(pa.Table.from_pylist(listed, table.schema.remove_metadata()))
        writer.add_key_value_metadata({KEY.decode(): facts.decode()})
    store().client.done("PUT", f"{bucket()}/{NAME}", body=Path(NAME).read_bytes())
    url, options = f"s3://{bucket()}/{NAME}", store().options()

    def advised() -> None:
        Path(NAME).write_bytes(store().client.done("GET", f"{bucket()}/{NAME}").body)
        assert rows(NAME) == RECORDS

    return Case(lambda: rows(url, storage_options=options), advised)


def a_signed_address() -> Case:
    url = served()

    def advised() -> None:
        ps.manifest(url, "web.manifest")
        assert rows("web.manifest") == RECORDS

    return Case(lambda: ps.manifest(f"{url}?X-Amz-Signature=abc", "web.manifest"), advised)


def a_manifest_in_a_list() -> Case:
    name = made()

    def advised() -> None:
        assert rows(name) == RECORDS
        assert len(ps.open(name, format="parquet")) == 2

    return Case(lambda: ps.open([name]), advised)


def some_columns() -> Case:
    made()
    source = "x-*.tfrecord"

    def advised() -> None:
        ps.manifest(ps.open(source), "y.manifest")
        assert rows("y.manifest") == RECORDS

    return Case(lambda: ps.manifest(ps.open(source, columns=["id"]), "y.manifest"), advised)


def a_split() -> Case:
    for name in ("train", "test"):
        ps.write({"id": [1, 2, 3]}, f"x-{name}.tfrecord", num_shards=2)
    ps.manifest(".", NAME)

    def advised() -> None:
        ps.manifest(ps.open(".", split="train"), "train.manifest")
        assert rows("train.manifest") == RECORDS

    return Case(lambda: ps.open(NAME, split="train"), advised)


CASES: Cases = {
    "'a manifest of each split: penstock.manifest(penstock.open(..., split=...), path)'": a_split,
    "'a newer penstock, or make it again'": another_version,
    "'make it again: penstock manifest SOURCE -o MANIFEST'": impossible_claims,
    "'copy the manifest to this machine, and open it there, if you trust it'": another_store,
    "'name the objects as s3://, gs:// or az://, and pass credentials when the manifest is opened; or addresses without a query'": a_signed_address,
    "'open it by its name alone; or open(..., format=\"parquet\"), which reads the list'": a_manifest_in_a_list,
    "'open the data without columns= and raw=True'": some_columns,
    "command('penstock', 'manifest', shown(self.manifest.path), '--refresh')": another_count,
    "f\"{command('penstock', 'manifest', shown(self.path), '--refresh')}, which lists it as it is now\"": a_changed_shard,
}
