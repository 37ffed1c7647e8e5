"""A manifest of files of this machine: what it lists opens as the files do, and what changed is an error."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from benchmarks.plan_tasks import write_manifest
from cli.running import run
from penstock.manifests.table import SCHEMA
from penstock.storage.manifest_mark import KEY

COUNT, SHARDS = 50, 5


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ps.write(
        {"id": range(COUNT), "name": [str(n) for n in range(COUNT)]},
        "x.tfrecord",
        num_shards=SHARDS,
    )
    ps.manifest("x-*.tfrecord", "x.manifest")
    return tmp_path


def test_a_manifest_opens_what_it_lists(folder: Path) -> None:
    plain, listed = ps.open("x-*.tfrecord"), ps.open("x.manifest")
    assert listed.schema == plain.schema
    assert listed.to_table() == plain.to_table()
    assert listed.take([49, 0, 7, 7]) == plain.take([49, 0, 7, 7])
    assert listed.shards == plain.shards
    assert listed.fingerprint == plain.fingerprint
    assert list(listed.paths) == list(plain.paths)
    assert listed.filter("id > 40").to_table() == plain.filter("id > 40").to_table()
    assert listed.rename({"id": "n"})[3] == {"n": 3, "name": "3"}
    assert listed.subset([1, 30]).fingerprint == plain.subset([1, 30]).fingerprint


@pytest.mark.parametrize("name", ["x.tar", "x.parquet", "x.npy", "x.arrow", "x.tfrecord.gz"])
def test_every_format_is_listed(tmp_path: Path, name: str) -> None:
    data = {"data": list(range(20))} if name == "x.npy" else {"id": list(range(20))}
    ps.write(data, tmp_path / name, num_shards=3)
    plain = ps.open(tmp_path / f"x-*{name[1:]}")
    ps.manifest(plain, tmp_path / "x.manifest")
    listed = ps.open(tmp_path / "x.manifest")
    assert listed.schema == plain.schema
    assert listed.to_table() == plain.to_table()
    assert listed.fingerprint == plain.fingerprint


def test_a_state_of_a_loader_fits_both(folder: Path) -> None:
    def loader(source: str) -> ps.Loader:
        return ps.Loader(ps.open(source), 4, order=ps.Shuffled(seed=1))

    first = loader("x-*.tfrecord")
    batches = [batch["id"].tolist() for batch in first]
    first.set_epoch(0)
    next(iter(first))
    rest = loader("x.manifest")
    rest.load_state_dict(first.state_dict())
    assert [batch["id"].tolist() for batch in rest] == batches[1:]


@pytest.mark.parametrize("order", [ps.Sequential(), ps.Shuffled(seed=2), ps.Blocked(seed=2)])
def test_a_loader_reads_each_record_once(folder: Path, order: Any) -> None:
    loader = ps.Loader(ps.open("x.manifest"), 8, order=order)
    assert sorted(n for batch in loader for n in batch["id"].tolist()) == list(range(COUNT))


def test_a_dataset_is_pickled_without_its_shards(folder: Path, tmp_path_factory: Any) -> None:
    data = pickle.dumps(ps.open("x.manifest"))
    assert b"x-00003" not in data
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert pickle.loads(data)[COUNT - 1]["id"] == COUNT - 1
    ps.manifest(folder / "x-*.tfrecord", folder / "x.manifest", overwrite=True)
    assert pickle.loads(data)[0]["id"] == 0  # the same facts
    ps.write({"id": [1]}, folder / "y.tfrecord")
    ps.manifest(folder / "y.tfrecord", folder / "x.manifest", overwrite=True)
    with pytest.raises(ps.ChangedError, match="the manifest was changed"):
        pickle.loads(data)


def test_the_table_is_opened_by_its_format(folder: Path) -> None:
    table = ps.open("x.manifest", format="parquet").to_table()
    assert table.schema.names == SCHEMA.names
    assert table["path"].to_pylist() == sorted(path.name for path in folder.glob("x-*"))
    assert table["first_record"].to_pylist() == [0, 10, 20, 30, 40]
    assert table["index"][0].as_py() == f".x-00000-of-{SHARDS:05}.tfrecord.penstock"


@pytest.mark.parametrize("name", ["list.parquet", "x", "shards.tfrecord"])
def test_the_name_of_a_manifest_does_not_matter(folder: Path, name: str) -> None:
    shutil.copy2("x.manifest", name)
    ps.manifest("x-*.tfrecord", name, overwrite=True)
    assert len(ps.open(name)) == COUNT


@pytest.mark.parametrize("source", [".", "*", "x*", "**/*"])
def test_a_manifest_among_shards_is_left_out_and_named(folder: Path, source: str) -> None:
    ds = ps.open(source)
    assert len(ds) == COUNT
    assert [Path(one.path).name for one in ds.skipped_files] == ["x.manifest"]


def test_a_manifest_with_the_name_of_a_shard_is_left_out(tmp_path: Path) -> None:
    ps.write({"id": [1, 2]}, tmp_path / "x.parquet", num_shards=2)
    ps.manifest(tmp_path / "x-*.parquet", tmp_path / "a.parquet")
    ds = ps.open(tmp_path / "*.parquet")
    assert ds.to_table()["id"].to_pylist() == [1, 2]
    assert [Path(one.path).name for one in ds.skipped_files] == ["a.parquet"]
    with pytest.raises(ps.UnsupportedError, match="a manifest, which lists shards"):
        ps.open([tmp_path / "a.parquet"])


def test_only_a_manifest_is_no_data(folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match="opened by its own name"):
        ps.open("*.manifest")


def test_verbs_read_what_a_manifest_lists(folder: Path) -> None:
    assert ps.verify("x.manifest").num_records == COUNT
    assert len(ps.index("x.manifest")) == SHARDS
    assert ps.convert("x.manifest", "y.parquet").num_records == COUNT
    assert ps.diff("x.manifest", "x-*.tfrecord").equal
    assert ps.stats("x.manifest").num_records == COUNT


def changed_shard() -> Path:
    path = Path(f"x-00002-of-{SHARDS:05}.tfrecord")
    data = path.read_bytes()
    path.write_bytes(data)
    os.utime(path, (1, 1))
    return path


def test_a_changed_shard_is_an_error_when_it_is_read(folder: Path) -> None:
    changed_shard()
    ds = ps.open("x.manifest")
    assert ds[0]["id"] == 0
    with pytest.raises(ps.ChangedError, match=r"x-00002.*since the manifest x.manifest") as raised:
        ds.take([25])
    assert (
        raised.value.hint == "penstock manifest x.manifest --refresh, which lists it as it is now"
    )
    assert [one.kind for one in ps.verify_manifest("x.manifest").findings] == ["changed"]
    ps.manifest("x.manifest", "x.manifest")
    assert ps.open("x.manifest").take([25])["id"].to_pylist() == [25]
    assert ps.verify_manifest("x.manifest").ok


def test_a_removed_shard_is_an_error_and_left_out_by_a_refresh(folder: Path) -> None:
    Path(f"x-00004-of-{SHARDS:05}.tfrecord").unlink()
    with pytest.raises(ps.ChangedError, match="was removed since"):
        ps.open("x.manifest").take([COUNT - 1])
    report = ps.verify_manifest("x.manifest")
    assert [(one.kind, one.num_records) for one in report.findings] == [("missing", 10)]
    assert ps.manifest("x.manifest", "x.manifest").notes == (
        "shards: 0 new, 0 changed, 1 gone, 4 as before",
    )
    assert len(ps.open("x.manifest")) == 40


def test_a_set_can_be_moved_with_its_manifest(folder: Path) -> None:
    (folder / "there").mkdir()
    for path in folder.glob("*x*"):
        shutil.copy(path, folder / "there")  # with new times
    for path in folder.glob("x-*"):
        path.unlink()
    assert ps.open("there/x.manifest").to_table()["id"].to_pylist() == list(range(COUNT))
    Path("there", f"x-00001-of-{SHARDS:05}.tfrecord").write_bytes(b"")
    with pytest.raises(ps.ChangedError):
        ps.open("there/x.manifest").to_table()


def test_a_manifest_elsewhere_lists_full_paths(folder: Path, tmp_path_factory: Any) -> None:
    other = tmp_path_factory.mktemp("other") / "x.manifest"
    ps.manifest("x-*.tfrecord", other)
    assert ps.open(other)[11]["id"] == 11
    assert pq.read_table(other)["path"][0].as_py() == str(
        folder / f"x-00000-of-{SHARDS:05}.tfrecord"
    )


def test_overlays_are_found_if_there_were_some(folder: Path) -> None:
    ps.add_fields("x-*.tfrecord", {"score": list(range(COUNT))})
    assert ps.open("x.manifest").schema.names == ["id", "name"]
    ps.manifest("x.manifest", "x.manifest")
    assert ps.open("x.manifest")[30] == {"id": 30, "name": "30", "score": 30}


def test_another_file_is_not_replaced(folder: Path) -> None:
    Path("y.manifest").write_text("mine")
    with pytest.raises(FileExistsError, match="is no manifest"):
        ps.manifest("x-*.tfrecord", "y.manifest")
    ps.manifest("x-*.tfrecord", "y.manifest", overwrite=True)
    assert len(ps.open("y.manifest")) == COUNT


def test_addresses_with_secrets_are_refused(tmp_path: Path) -> None:
    from penstock.manifests.table import stored_name

    for address in ("https://h/x?X-Amz-Signature=SECRET", "https://me:SECRET@h/x.tar"):
        with pytest.raises(ps.UnsupportedError, match="must not hold") as raised:
            stored_name(address, "m.manifest")
        assert "SECRET" not in str(raised.value)
        assert "s3://" in (raised.value.hint or "")


def test_views_and_columns_are_refused(folder: Path) -> None:
    for ds in (ps.open("x-*.tfrecord").filter("id > 3"), ps.open("x-*.tfrecord", columns=["id"])):
        with pytest.raises(ps.UnsupportedError):
            ps.manifest(ds, "y.manifest")


def test_a_wrong_count_is_an_error(folder: Path) -> None:
    told(folder / "x.manifest", swap_counts)
    ds = ps.open("x.manifest")
    assert len(ds) == COUNT
    with pytest.raises(ps.StaleIndexError, match=r"number of records that .*x.manifest lists"):
        ds.take([0])


def swap_counts(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    rows[0]["records"], rows[1]["records"] = 9, 11
    rows[1]["first_record"] = 9


def told(
    path: Path, change: Callable[[dict[str, Any], list[dict[str, Any]]], Any], schema: Any = SCHEMA
) -> None:
    """Rewrite a manifest with other facts and rows."""
    table = pq.read_table(path)
    facts = json.loads(pq.read_metadata(path).metadata[KEY])
    rows = table.to_pylist()
    change(facts, rows)
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    fields = [
        field.with_nullable(field.nullable or any(row[field.name] is None for row in rows))
        for field in schema
    ]
    new = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    with pq.ParquetWriter(path, new.schema, store_schema=False) as writer:
        writer.write_table(new)
        writer.add_key_value_metadata({KEY.decode(): json.dumps(facts)})


def fact(name: str, value: Any) -> Callable[[dict[str, Any], list[dict[str, Any]]], None]:
    return lambda facts, rows: facts.update({name: value})


def row(name: str, value: Any) -> Callable[[dict[str, Any], list[dict[str, Any]]], None]:
    return lambda facts, rows: rows[1].update({name: value})


HOSTILE: dict[str, Any] = {
    "negative bytes": (row("bytes", -1), "bytes is negative"),
    "other count": (fact("records", [COUNT + 1]), "counts of the rows and of the footer differ"),
    "negative count": (fact("records", [-1]), "are no counts"),
    "huge count": (fact("records", [1 << 80]), "are no counts"),
    "more groups": (fact("records", [COUNT, 0]), "another number of row groups"),
    "no groups": (fact("records", []), "another number of row groups"),
    "text count": (fact("records", ["1"]), "are no counts"),
    "first record": (row("first_record", 3), "counts of the rows"),
    "negative records": (row("records", -10), "records is negative"),
    "wrapping records": (
        lambda facts, rows: [one.update(records=(1 << 63) - 1) for one in rows],
        "counts of the rows",
    ),
    "upwards": (row("path", "../../etc/passwd"), "leads out of"),
    "upwards inside": (row("path", "a/../../b"), "leads out of"),
    "empty path": (row("path", ""), "leads out of"),
    "NUL": (row("path", "a\0b"), "leads out of"),
    "null path": (row("path", None), "columns are not those"),
    "null records": (row("records", None), "columns are not those"),
    "twice": (lambda facts, rows: rows[1].update(path=rows[0]["path"]), "listed twice"),
    "presigned": (row("path", "https://h/x?X-Amz-Signature=SECRET"), "must not hold"),
    "password": (row("path", "https://me:SECRET@h/x"), "must not hold"),
    "version": (fact("version", 7), "reads version 1"),
    "types": (fact("types", "guessed"), "facts of the manifest"),
    "schema": (fact("schema", "AAAA"), "no valid schema"),
    "no base64": (fact("schema", "é"), "no valid schema"),
    "flag": (fact("overlays", 1), "facts of the manifest"),
}


@pytest.mark.parametrize(("change", "message"), HOSTILE.values(), ids=HOSTILE)
def test_impossible_claims_are_refused(folder: Path, change: Any, message: str) -> None:
    told(folder / "x.manifest", change)
    with pytest.raises((ps.FormatError, ps.UnsupportedError), match=message) as raised:
        ps.open("x.manifest").to_table()
    assert "x.manifest" in str(raised.value)
    assert "SECRET" not in str(raised.value)


def test_other_columns_are_refused(folder: Path) -> None:
    told(folder / "x.manifest", lambda facts, rows: None, pa.schema(list(SCHEMA)[:-1]))
    with pytest.raises(ps.FormatError, match="not those of a manifest"):
        ps.open("x.manifest")


def test_a_table_that_only_mentions_the_key_is_data(tmp_path: Path) -> None:
    ps.write({"penstock.manifest": [1, 2]}, tmp_path / "x.parquet")
    assert len(ps.open(tmp_path / "x.parquet")) == 2


MILLION = """
import json, resource, sys, time
import penstock as ps, pyarrow.parquet, numpy as np
rss = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
before, began = rss(), time.process_time()
options = {"aws_endpoint_url": "http://127.0.0.1:1", "aws_allow_http": True, "aws_region": "r"}
ds = ps.open(sys.argv[1], storage_options=options)
seconds = time.process_time() - began
last = ds.files.locate(np.array([len(ds) - 1]))
print(json.dumps({
    "seconds": seconds, "mebibytes": rss() - before, "records": len(ds),
    "shard": [int(one[0]) for one in last], "path": ds.paths[999_999], "pandas": "pandas" in sys.modules,
}))
"""


def test_a_million_shards_open_at_once(tmp_path: Path) -> None:
    """No server answers, so nothing is asked for."""
    path = tmp_path / "m.manifest"
    write_manifest(path)
    done = subprocess.run(
        [sys.executable, "-c", MILLION, str(path)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["records"] == 10_000_000
    assert found["shard"] == [999_999, 9]
    assert found["path"] == "s3://bucket/part-0999999.tfrecord"
    assert found["mebibytes"] < 200
    assert not found["pandas"]


def test_groups_hand_out_all_shards(folder: Path) -> None:
    groups = list(ps.open("x.manifest").files.manifest.groups())
    assert [batch.num_rows for batch in groups] == [SHARDS]
    assert groups[0].schema.names == SCHEMA.names
    assert np.sum(groups[0].column("records").to_numpy()) == COUNT


@pytest.mark.parametrize("verb", ["write", "convert"])
def test_writers_write_a_manifest_last(folder: Path, verb: str) -> None:
    Path("new").mkdir()

    def write(**how: Any) -> ps.Summary:
        if verb == "write":
            return ps.write({"id": range(9)}, "new/y.tfrecord", num_shards=3, **how)
        return ps.convert("x.manifest", "new/y.tfrecord", num_shards=3, **how)

    made = write(manifest="new/y.manifest")
    assert list(ps.open("new/y.manifest").paths) == list(made.paths)
    assert len(ps.open("new/y.manifest")) == made.num_records
    with pytest.raises(FileExistsError, match="the manifest exists"):
        write(manifest="new/y.manifest")
    write(manifest="new/y.manifest", overwrite=True)
    assert ps.verify_manifest("new/y.manifest").ok


def test_the_command(folder: Path) -> None:
    assert run("manifest", "x-*.tfrecord", "-o", "z.manifest").status == 0
    assert "5 as before" in run("manifest", "z.manifest", "--refresh").err
    assert run("manifest", "z.manifest", "--verify").out.startswith("ok: 50 records")
    changed_shard()
    found = run("manifest", "z.manifest", "--verify")
    assert (found.status, found.out.partition(":")[0]) == (1, "1 fault")
    assert run("manifest", "z.manifest").status == 2
    assert run("convert", "x-*.tfrecord", "w.tfrecord", "--manifest", "w.manifest").status == 0
    assert len(ps.open("w.manifest")) == COUNT


def test_a_scan_notices_a_wrong_count(folder: Path) -> None:
    told(folder / "x.manifest", swap_counts)
    found = 0
    with pytest.raises(ps.StaleIndexError, match="number of records that"):
        for batch in ps.open("x.manifest").scan():
            found += batch.num_rows
    assert found == 10  # those of the first shard


def test_the_last_shard_of_a_scan_is_counted_too(folder: Path) -> None:
    def more(facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        facts["records"] = [COUNT + 1]
        rows[-1]["records"] += 1

    told(folder / "x.manifest", more)
    with pytest.raises(ps.StaleIndexError, match="number of records that"):
        list(ps.open("x.manifest").scan())


def test_a_manifest_in_a_list_is_refused(folder: Path) -> None:
    with pytest.raises(ps.UnsupportedError, match="a manifest, which lists shards"):
        ps.open(["x-00000-of-00005.tfrecord", "x.manifest"])


def test_blocks_are_parts_of_shards(tmp_path: Path) -> None:
    names = [f"{n}.npy" for n in range(3)]
    for name, count in zip(names, (7, 0, 1000), strict=True):
        ps.write({"data": np.arange(count)}, tmp_path / name)
    ps.manifest([tmp_path / name for name in names], tmp_path / "x.manifest")
    listed = ps.open(tmp_path / "x.manifest").files.manifest
    assert listed.parts(1 << 20).tolist() == [7, 1000]
    parts = listed.parts(1 << 10).tolist()
    assert len(parts) == 1 + 7
    assert sum(parts) == 1007
    assert max(parts[1:]) - min(parts[1:]) <= 1


@pytest.mark.parametrize("place", ["data/x.manifest", "x.manifest", "data/year=2024/x.manifest"])
def test_the_names_of_folders_are_columns_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for year in (2023, 2024):
        Path(f"data/year={year}").mkdir(parents=True)
        ps.write({"id": [year]}, f"data/year={year}/a.parquet")
    plain = ps.open("data")
    ps.manifest("data", place)
    listed = ps.open(place)
    assert listed.schema == plain.schema
    assert listed.to_table() == plain.to_table()
    assert listed.fingerprint == plain.fingerprint
    assert ps.open(place, hive=False).schema.names == ["id"]
    ps.manifest(plain, "again.manifest")
    assert ps.open("again.manifest").to_table() == plain.to_table()


def test_a_split_of_a_manifest_is_refused(tmp_path: Path) -> None:
    for split in ("train", "test"):
        ps.write({"id": [1, 2]}, tmp_path / f"x-{split}.tfrecord", num_shards=2)
    ps.manifest(ps.open(tmp_path, split="train"), tmp_path / "train.manifest")
    assert len(ps.open(tmp_path / "train.manifest")) == 2
    with pytest.raises(ps.UnsupportedError, match="split= chooses files by their names"):
        ps.open(tmp_path / "train.manifest", split="train")
