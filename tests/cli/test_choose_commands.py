"""`penstock split`, `dedupe`, `sort`, and `--where` of `head`, `stats` and `fields replace`."""

from __future__ import annotations

from pathlib import Path

import pytest
from running import run, run_process

import penstock as ps


def ids(*paths: str | Path, **how: str) -> list[int]:
    return ps.open(list(map(str, paths)), **how).to_table(["id"])["id"].to_pylist()


def test_split_writes_files_that_open_by_the_name_of_the_split(
    shards: Path, tmp_path: Path
) -> None:
    into = tmp_path / "out" / "{split}-{shard}.tfrecord"
    done = run("split", "--json", shards, "--into", into, "--num-shards", 2)
    assert done.status == 0
    made = done.document["splits"]
    assert {name: part["num_records"] for name, part in made.items()} == {
        "train": 240,
        "val": 30,
        "test": 30,
    }
    found = [n for name in made for n in ids(tmp_path / "out" / f"{name}-*", split=name)]
    assert sorted(found) == list(range(300))
    shown = run("split", shards, "--into", into, "--num-shards", 2, "--overwrite")
    assert shown.out.splitlines()[0].startswith("train: 240 records, ")
    assert run("split", shards, "--into", into, "--num-shards", 2).status == 2


def test_split_by_a_field_and_stratified(shards: Path, tmp_path: Path) -> None:
    how = ("--shares", "a=0.5,b=0.5")
    run("split", shards, "--into", tmp_path / "{split}.arrow", *how, "--by", "name")
    names = [set(ps.open(tmp_path / f"{s}.arrow").to_table()["name"].to_pylist()) for s in "ab"]
    assert not names[0] & names[1]
    run("split", shards, "--into", tmp_path / "{split}.parquet", *how, "--stratify", "name")
    for s in "ab":
        found = ps.open(tmp_path / f"{s}.parquet").to_table()["name"].to_pylist()
        assert {found.count(name) for name in set(found)} == {50}


def test_split_says_what_it_leaves_out(shards: Path, tmp_path: Path) -> None:
    into = tmp_path / "{split}.arrow"
    done = run_process("split", shards, "--into", into, "--shares", "few=0.1")
    assert done.status == 0
    assert "warning: 270 of 300 records are in no split" in done.err


@pytest.mark.parametrize("ending", ["tfrecord", "parquet"])
def test_the_deciding_field_need_not_be_written(tmp_path: Path, ending: str) -> None:
    data, into = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    ps.write({"id": [0, 1, 2, 3], "score": [2.0, 1.0, 3.0, 1.0]}, data)
    assert run("sort", data, "--by", "score", "--columns", "id", "--into", into).status == 0
    assert ps.open(into).to_table().to_pydict() == {"id": [1, 3, 0, 2]}
    how = ("--columns", "id", "--overwrite", "--into", into)
    assert run("dedupe", data, "--by", "score", *how).status == 0
    assert ps.open(into).to_table().to_pydict() == {"id": [0, 1, 2]}
    assert run("dedupe", data, "--columns", "score", "--into", into, "--overwrite").status == 0
    assert ps.open(into).to_table().to_pydict() == {"score": [2.0, 1.0, 3.0]}
    splits = tmp_path / f"{{split}}.{ending}"
    assert run("split", data, "--by", "score", "--columns", "id", "--into", splits).status == 0
    made = [ps.open(path) for path in tmp_path.glob(f"t*.{ending}")]
    assert all(part.schema.names == ["id"] for part in made if len(part))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shares", "a=0.9,b=0.2"), "more than 1"),
        (("--shares", "a=-1"), "above 0 and at most 1"),
        (("--shares", "a=many"), "is not a fraction"),
        (("--shares", "a"), "is not NAME=VALUE"),
        (("--by", "nothing"), "there is no field 'nothing'"),
        (("--by", "id", "--stratify", "name"), "use one"),
    ],
)
def test_split_refuses_invalid_arguments(
    options: tuple[str, ...], message: str, shards: Path, tmp_path: Path
) -> None:
    done = run("split", shards, "--into", tmp_path / "{split}.arrow", *options)
    assert done.status == 2
    assert message in done.err
    assert not list(tmp_path.glob("*.arrow"))
    assert run("split", shards, "--into", tmp_path / "x.arrow").status == 2


def test_dedupe_and_sort(shards: Path, tmp_path: Path) -> None:
    out = tmp_path / "unique.tfrecord"
    assert (
        run("dedupe", "--json", shards, "--into", out, "--by", "name").document["num_records"] == 3
    )
    assert ids(out) == [0, 1, 2]
    assert run("dedupe", shards, "--into", out, "--overwrite").status == 0
    assert ids(out) == list(range(300))
    out = tmp_path / "sorted.arrow"
    assert run("sort", shards, "--into", out, "--by", "id", "--descending").status == 0
    assert ids(out) == list(range(299, -1, -1))
    assert run("sort", shards, "--into", out, "--by", "score,id", "--overwrite").status == 0
    assert ids(out)[-75:] == list(range(0, 300, 4))
    for command in ("sort", "dedupe"):
        done = run(command, shards, "--into", tmp_path / "x.arrow", "--by", "nothing")
        assert done.status == 2
        assert "there is no field 'nothing'" in done.err


def test_commands_leave_damaged_records_out_if_told_to(damaged: Path, tmp_path: Path) -> None:
    commands = {
        "{split}": ("split", "--shares", "all=1"),
        "d": ("dedupe",),
        "s": ("sort", "--by", "id"),
    }
    for name, command in commands.items():
        out = tmp_path / f"{name}.arrow"
        assert run(*command, damaged, "--into", out).status == 1
        assert not list(tmp_path.glob("*.arrow"))
        done = run(*command, damaged, "--into", out, "--damage", "skip")
        assert done.status == 0
        assert "skipped in" in done.err
        (made,) = tmp_path.glob("*.arrow")
        assert len(ids(made)) == 299
        made.unlink()


def test_the_rest_of_a_sample_has_the_records_outside_it(shards: Path, tmp_path: Path) -> None:
    for seed in (0, 1):
        some, rest = tmp_path / f"some-{seed}.arrow", tmp_path / f"rest-{seed}.arrow"
        assert run("convert", shards, some, "--sample", "0.1", "--seed", seed).status == 0
        assert run("convert", shards, rest, "--sample-rest", "0.1", "--seed", seed).status == 0
        assert len(ids(some)) == 30
        assert sorted(ids(some) + ids(rest)) == list(range(300))
    assert ids(tmp_path / "some-0.arrow") != ids(tmp_path / "some-1.arrow")
    done = run("convert", shards, rest, "--sample", "0.1", "--sample-rest", "0.1", "--overwrite")
    assert done.status == 2
    assert "--sample" in done.err


def test_head_and_stats_of_the_records_that_fulfil_a_condition(shards: Path) -> None:
    found = run("head", "--json", "-n", 2, "--where", "id >= 150 and name == 'x'", shards)
    assert found.status == 2
    found = run("head", "--json", "-n", 2, "--where", "id >= 150 and len(tokens) == 2", shards)
    assert [row["id"] for row in found.document["records"]] == [152, 157]
    found = run("head", "--json", "-n", 2, "--start", 1, "--where", "id >= 298", shards)
    assert [row["id"] for row in found.document["records"]] == [299]
    assert "no records" in run("head", "--where", "id < 0", shards).err
    stats = run("stats", "--json", "--where", "id < 10", shards).document
    assert stats["num_records"] == 10
    assert ps.stats(str(shards), where="id < 10").num_records == 10
    for command in ("head", "stats"):
        done = run(command, "--where", "nothing == 3", shards)
        assert done.status == 2
        assert "there is no field 'nothing'" in done.err
        assert run(command, "--where", "id == 'a'", shards).status == 2


def test_replaced_fields_of_some_records(single: Path) -> None:
    how = ("--set", "name=other", "--where", "id < 2", "--in-place")
    assert run("fields", "replace", single, *how).status == 0
    names = ps.open(single).to_table()["name"].to_pylist()
    assert names[:2] == ["other", "other"]
    assert "other" not in names[2:]
    done = run("fields", "replace", single, "--set", "name=a", "--where", "nope == 1", "--in-place")
    assert done.status == 2


WRITING = {
    "convert": "convert {source} {target}",
    "split": "split {source} --into {folder}/{{split}}.arrow --shares all=1.0",
    "dedupe": "dedupe {source} --into {target}",
    "sort": "sort {source} --by n --into {target}",
}


@pytest.mark.parametrize("verb", WRITING)
@pytest.mark.parametrize("text", ["caption", "auto"])
def test_commands_that_write_records_take_the_same_reading_options(
    verb: str, text: str, tmp_path: Path
) -> None:
    source = tmp_path / "a.tfrecord"
    rows = {"n": [2, 1], "caption": [b"a", b"b"], "blob": [b"\xff", b"\xfe"], "more": [1, 1]}
    ps.write(rows, source, index=False)
    places = {"source": source, "target": tmp_path / "all.arrow", "folder": tmp_path}
    command = WRITING[verb].format(**places).split()
    how = ("--text", text, "--cast", "n=int16", "--columns", "n,caption,blob", "--infer", "all")
    done = run(*command, *how)
    assert done.status == 0, done.err
    types = {field.name: str(field.type) for field in ps.open(tmp_path / "all.arrow").schema}
    assert types == {"n": "int16", "caption": "string", "blob": "binary"}
    wrong = run(*command, "--text", "nothing", "--overwrite")
    assert wrong.status == 2, wrong.err
    assert "nothing" in wrong.err


def test_append_takes_the_reading_options_of_convert() -> None:
    from penstock.cli.append import command as append
    from penstock.cli.convert import command as convert
    from penstock.cli.options import OF_RECORDS

    for command in (append, convert):
        assert set(OF_RECORDS) <= {parameter.name for parameter in command.params}


def test_head_shows_other_columns_than_the_condition_reads(shards: Path) -> None:
    done = run("head", "--json", "--columns", "name", "--where", "id >= 298", shards)
    assert [list(row) for row in done.document["records"]] == [["name"], ["name"]]
    done = run("head", "--columns", "nope", "--where", "id >= 298", shards)
    assert done.status == 2
    assert "there is no field 'nope'" in done.err


@pytest.mark.parametrize("command", ["convert", "dedupe", "sort"])
def test_missing_folders_of_the_target_are_made(shards: Path, tmp_path: Path, command: str) -> None:
    target = tmp_path / "new" / "folder" / "out.arrow"
    words = {
        "convert": (shards, target),
        "dedupe": (shards, "--into", target),
        "sort": (shards, "--by", "id", "--into", target),
    }
    assert run(command, *words[command]).status == 0
    assert ids(target) == list(range(300))
    wrong = tmp_path / "none" / "out.arrow"
    assert run("convert", shards, wrong, "--columns", "nope").status == 2
    assert not wrong.parent.exists()


def test_where_chooses_before_dedupe_sort_and_split(tmp_path: Path) -> None:
    data, into = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    ps.write({"id": range(10), "of": [n % 3 for n in range(10)]}, data)
    how = ("--into", into, "--overwrite", "--where")
    assert run("dedupe", data, "--by", "of", *how, "id >= 4").status == 0
    assert ids(into) == [4, 5, 6]
    assert run("sort", data, "--by", "of", "--columns", "id", *how, "id >= 6").status == 0
    assert ids(into) == [6, 9, 7, 8]
    splits = ("split", data, "--into", tmp_path / "{split}.arrow", "--shares", "a=0.5,b=0.5")
    assert run(*splits, "--where", "of != 0").status == 0
    first, second = ids(tmp_path / "a.arrow"), ids(tmp_path / "b.arrow")
    assert (len(first), len(second)) == (3, 3)
    assert sorted(first + second) == [1, 2, 4, 5, 7, 8]
    for words in (("dedupe", data), ("sort", data, "--by", "of")):
        done = run(*words, *how, "no > 4")
        assert (done.status, "there is no field 'no'; there are: id, of" in done.err) == (2, True)
