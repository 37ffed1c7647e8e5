"""`penstock fields add`, `replace`, `drop`, `rename` and `bake`: what they do, print and refuse."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from running import run, run_process

import penstock as ps


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    """A table with a row for each record, matched by key, and in a different order."""
    path = tmp_path / "scores.parquet"
    ids = list(range(300))[::-1]
    ps.write({"id": ids, "points": [n * 10 for n in ids]}, path)
    return path


@pytest.fixture
def own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder with a module of the user, and forget modules that were imported from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lengths.py").write_text(
        "def measure(batch):\n"
        "    names = batch['name'].to_pylist()\n"
        "    return {'length': [len(name) for name in names], 'columns': batch.num_columns}\n"
        "def fail(batch):\n"
        "    raise KeyError('no such thing')\n"
    )
    yield
    sys.modules.pop("lengths", None)


def column(source: Path, name: str) -> list[object]:
    return [row[name] for row in ps.open(source)]


def test_add_without_a_place_writes_an_overlay(shards: Path, scores: Path) -> None:
    before = {path: path.read_bytes() for path in shards.glob("*.tfrecord")}
    ran = run("fields", "add", shards, "--from", scores, "--by", "id", "--name", "points", "--json")
    assert ran.status == 0
    assert ran.err == ""
    document = ran.document
    assert document["num_records"] == 300
    assert len(document["paths"]) == 3
    assert all(path.endswith(".penstock-fields/points.overlay") for path in document["paths"])
    assert {path: path.read_bytes() for path in shards.glob("*.tfrecord")} == before
    assert column(shards, "points") == [n * 10 for n in range(300)]
    assert [o["name"] for o in run("fields", "list", shards, "--json").document["overlays"]] == [
        "points"
    ]


def test_add_in_place_by_a_key_and_verified(shards: Path, scores: Path) -> None:
    ran = run(
        "fields", "add", shards, "--from", scores, "--by", "id", "--in-place", "--verify", "--json"
    )
    paths = [str(path) for path in sorted(shards.glob("*.tfrecord"))]
    num_bytes = sum(Path(path).stat().st_size for path in paths)
    assert ran.status == 0
    facts = {"num_records": 300, "num_bytes": num_bytes, "notes": []}
    assert ran.document == {"paths": paths, **facts}
    assert column(shards, "points") == [n * 10 for n in range(300)]
    assert ps.overlays(shards) == []


def test_add_set_into_a_folder_parses_values_by_their_type(shards: Path, tmp_path: Path) -> None:
    into = tmp_path / "out"
    ran = run("fields", "add", shards, "--set", "split=train", "--set", "n=7", "--into", into)
    assert ran.status == 0
    assert ran.out.startswith("300 records, ")
    assert str(into) in ran.out
    assert len(ran.out.splitlines()) == 1
    first = ps.open(into)[0]
    assert (first["split"], first["n"], first["id"]) == ("train", 7, 0)
    assert "split" not in ps.open(shards).schema.names
    again = run("fields", "add", shards, "--set", "split=train", "--into", into)
    assert again.status == 2
    assert "overwrite" in again.err
    more = ("--set", "split=test", "--into", into, "--overwrite")
    assert run("fields", "add", shards, *more).status == 0
    assert set(column(into, "split")) == {"test"}


@pytest.mark.usefixtures("own_modules")
def test_fields_add_stores_the_results_of_a_function(single: Path) -> None:
    given = ("--function", "lengths:measure", "--reads", "name")
    ran = run("fields", "add", single, *given, "--in-place", "--threads", 1)
    assert ran.status == 0
    rows = ps.open(single)[:].to_pylist()
    assert [row["length"] for row in rows] == [len(row["name"]) for row in rows]
    assert {row["columns"] for row in rows} == {1}


@pytest.mark.usefixtures("own_modules")
def test_a_separate_process_finds_the_function_too(single: Path, tmp_path: Path) -> None:
    given = ("--function", "lengths:measure", "--reads", "name", "--into", "out.tfrecord")
    ran = run_process("fields", "add", single.name, *given, "--json", cwd=tmp_path)
    assert (ran.status, ran.err) == (0, "")
    assert ran.document["paths"] == ["out.tfrecord"]
    assert column(tmp_path / "out.tfrecord", "length")[1] == 3


def test_an_existing_field_is_refused_unless_replaced(single: Path) -> None:
    before = single.read_bytes()
    for where in (("--in-place",), ()):
        ran = run("fields", "add", single, "--set", "name=x", *where, "--json")
        assert ran.status == 2
        assert ran.document["error"]["field"] == "name"
        assert "the records already have this field" in ran.err
        assert "try: --replace" in ran.err
    assert single.read_bytes() == before
    ran = run("fields", "add", single, "--set", "name=x", "--in-place", "--replace")
    assert ran.status == 0
    assert set(column(single, "name")) == {"x"}


def test_a_missing_key_is_reported_or_becomes_a_null(single: Path, tmp_path: Path) -> None:
    table = tmp_path / "few.parquet"
    ps.write({"id": [n for n in range(300) if n != 42], "points": [1] * 299}, table)
    before = single.read_bytes()
    command = ("fields", "add", single, "--from", table, "--by", "id", "--in-place")
    ran = run(*command, "--json")
    assert ran.status == 1
    error = ran.document["error"]
    assert (error["field"], error["record"], error["file"]) == ("id", 42, str(single))
    assert "record 42, field 'id': the table has no row for 42" in ran.err
    assert single.read_bytes() == before
    assert run(*command, "--missing", "null").status == 0
    assert [n for n, v in enumerate(column_or_none(single, "points")) if v is None] == [42]


def column_or_none(source: Path, name: str) -> list[object]:
    return [row.get(name) for row in ps.open(source)]


def test_a_key_that_comes_twice_and_a_short_table_are_reported(
    single: Path, tmp_path: Path
) -> None:
    table = tmp_path / "twice.parquet"
    ps.write({"id": [1, 2, 1], "points": [1, 2, 3]}, table)
    ran = run("fields", "add", single, "--from", table, "--by", "id", "--in-place")
    assert ran.status == 1
    assert "the key 1 twice" in ran.err
    short = run("fields", "add", single, "--from", table, "--in-place", "--replace")
    assert short.status == 1
    assert "300 records" in short.err
    assert "3 values" in short.err


def test_replace_gives_other_values(shards: Path, tmp_path: Path) -> None:
    table = tmp_path / "names.parquet"
    ps.write({"id": list(range(300)), "name": [f"n{n}" for n in range(300)]}, table)
    ran = run("fields", "replace", shards, "--from", table, "--by", "id", "--in-place", "--verify")
    assert ran.status == 0
    assert column(shards, "name") == [f"n{n}" for n in range(300)]
    unknown = run("fields", "replace", shards, "--set", "colour=red", "--in-place")
    assert unknown.status == 2
    assert "there is no field 'colour'; there are: id, name, score, tokens" in unknown.err


def test_drop_removes_several_fields(shards: Path, tmp_path: Path) -> None:
    into = tmp_path / "small"
    ran = run("fields", "drop", shards, "score", "tokens", "--into", into, "--verify", "--json")
    assert ran.status == 0
    assert ran.document["num_records"] == 300
    assert ps.open(into).schema.names == ["id", "name"]
    unknown = run("fields", "drop", shards, "colour", "--in-place")
    assert unknown.status == 2
    assert "there is no field 'colour'" in unknown.err


def test_rename_can_swap_two_names(single: Path) -> None:
    old = ps.open(single)[5]
    ran = run("fields", "rename", single, "id=name", "name=id", "--in-place", "--verify")
    assert ran.status == 0
    new = ps.open(single)[5]
    assert (new["id"], new["name"]) == (old["name"], old["id"])
    taken = run("fields", "rename", single, "id=score", "--in-place")
    assert taken.status == 2
    assert "field 'score': the records already have this field" in taken.err


def test_bake_puts_overlays_into_the_records(shards: Path, tmp_path: Path) -> None:
    assert run("fields", "add", shards, "--set", "n=1", "--name", "first").status == 0
    assert run("fields", "add", shards, "--set", "m=2", "--name", "second").status == 0
    shown = ps.open(shards)[:].to_pylist()
    refused = run("fields", "drop", shards, "name", "--in-place")
    assert refused.status == 1
    assert "penstock fields bake" in refused.err
    into = tmp_path / "baked"
    assert run("fields", "bake", shards, "--into", into, "--verify").status == 0
    assert len(ps.overlays(shards)) == 2
    ran = run("fields", "bake", shards, "--in-place", "--verify", "--json")
    assert ran.status == 0
    assert ran.document["num_records"] == 300
    assert ps.overlays(shards) == []
    for source in (into, shards):
        assert sorted(ps.open(source, overlays=False).schema.names) == sorted(shown[0])
        assert ps.open(source, overlays=False)[:].to_pylist() == shown
    nothing = run("fields", "bake", shards, "--in-place")
    assert nothing.status == 2
    assert "has no overlays" in nothing.err


@pytest.mark.parametrize("where", [(), ("--in-place",)], ids=["beside", "in place"])
def test_set_to_null_empties_a_field_and_keeps_its_type(
    single: Path, where: tuple[str, ...]
) -> None:
    types = ps.open(single).schema.types
    ran = run("fields", "replace", single, "--set", "name=null", "--where", "id < 3", *where)
    assert ran.status == 0, ran.err
    assert ps.open(single).to_table()["name"].null_count == 3
    assert ps.open(single).schema.types == types
    for field in ("name", "score", "tokens"):
        ran = run("fields", "replace", single, "--set", f"{field}=null", *where)
        assert ran.status == 0, ran.err
        if not where:
            assert ps.open(single).to_table()[field].null_count == 300
    if not where:
        assert ps.open(single).schema.types == types


def test_a_null_of_no_type_is_refused(single: Path) -> None:
    ran = run("fields", "add", single, "--set", "lang=null", "--json")
    assert ran.status == 1
    assert ran.document["error"]["field"] == "lang"
    assert "null has no type" in ran.err
    assert "--from TABLE" in ran.err
    assert ps.overlays(single) == []
    ran = run("fields", "add", single, "--set", "name=null", "--replace")
    assert ran.status == 0, ran.err
    assert ps.open(single).to_table()["name"].null_count == 300


def test_set_to_nothing_is_the_empty_text(single: Path) -> None:
    assert run("fields", "replace", single, "--set", "name=").status == 0
    assert set(column(single, "name")) == {""}
    assert run("fields", "add", single, "--set", "word=", "--set", 'n="7"').status == 0
    assert ps.open(single)[5]["word"] == ""
    assert ps.open(single)[5]["n"] == "7"


EXPRESSIONS = [
    "len(name)",
    'cast(name, "float64")',
    "cast(name, float64)",
    'contains(name, "a")',
    'startswith(name, "a")',
    'matches(name, "a.")',
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_set_to_an_expression_is_refused_and_both_advices_work(single: Path, text: str) -> None:
    ran = run("fields", "replace", single, "--set", f"name={text}")
    assert ran.status == 2
    assert ps.overlays(single) == []
    advice = ran.err.split("try: ")[1]
    computed, quoted = advice.split(", or --set ")
    words = shlex.split(computed.replace("SOURCE TARGET", f"{single} {single}.arrow"))[1:]
    assert words[-1] == f"name={text}"
    if text == "len(name)":
        assert run(*words).status == 0
        lengths = [len(str(name)) for name in column(single, "name")]
        assert column(Path(f"{single}.arrow"), "name") == lengths
    given = shlex.split(quoted.replace(" for the text itself", ""))
    assert run("fields", "replace", single, "--set", *given).status == 0
    assert set(column(single, "name")) == {text}


@pytest.mark.parametrize("text", ["id+1", "id + 1", "-id", "+id"])
@pytest.mark.parametrize("where", [(), ("--where", "id < 3")], ids=["all", "some"])
def test_a_text_for_a_number_is_refused_and_the_advice_computes(
    single: Path, text: str, where: tuple[str, ...]
) -> None:
    before = single.read_bytes()
    for place in ((), ("--in-place",)):
        ran = run("fields", "replace", single, "--set", f"id={text}", *where, *place)
        assert ran.status == 2
        assert "does not fit the field 'id', which is int64, and --set does not compute" in ran.err
    assert (single.read_bytes(), ps.overlays(single)) == (before, [])
    advice = ran.err.split("try: ")[1]
    assert ("--replace" in advice) == (not where)
    computed = advice.split(", or ps.replace_fields")[0]
    assert ("EXPRESSION" in computed) == (text == "+id")  # which is no expression
    computed = computed.replace("EXPRESSION", "'id + 1'")
    words = shlex.split(computed.replace("SOURCE TARGET", f"{single} {single}.arrow"))
    assert run(*words[1:]).status == 0
    made = [-n if text == "-id" else n + 1 for n in range(300)]
    assert column(Path(f"{single}.arrow"), "id") == made


def test_a_value_of_another_type_is_refused_and_the_advice_changes_the_type(tmp_path: Path) -> None:
    source = tmp_path / "one.tfrecord"
    ps.write(
        {"price": [b"\xff", b"a"], "n": [1, 2], "share": [0.5, 1.5], "small": np.ones(2, "f4")},
        source,
    )
    for word in ("price=0", "n=0.5", "n=99999999999999999999", "share=much", "small=1e300"):
        ran = run("fields", "replace", source, "--set", word, "--in-place")
        assert ran.status == 2
        assert "does not fit the field" in ran.err
    ran = run("fields", "replace", source, "--set", "price=0", "--in-place")
    words = shlex.split(
        ran.err.split("try: ")[1].split(" to change")[0].replace("SOURCE", str(source))
    )
    assert run(*words[1:], "--in-place").status == 0
    assert column(source, "price") == [0, 0]


def test_a_number_is_true_or_false_only_if_it_is_one_or_zero(tmp_path: Path) -> None:
    source = tmp_path / "one.parquet"
    ps.write({"ok": [True, False]}, source)
    assert run("fields", "replace", source, "--set", "ok=2", "--in-place").status == 2
    assert run("fields", "replace", source, "--set", "ok=1", "--in-place").status == 0
    assert list(ps.open(source)) == [{"ok": True}] * 2


def test_a_value_that_fits_gets_the_type_of_the_field(tmp_path: Path) -> None:
    source = tmp_path / "one.parquet"
    ps.write({"share": [0.5, 1.5], "name": ["a", "b"], "raw": [b"a", b"b"]}, source)
    schema = ps.open(source).schema
    given = ("--set", "share=1", "--set", "name=5", "--set", "raw=x", "--in-place")
    assert run("fields", "replace", source, *given).status == 0
    assert ps.open(source).schema == schema
    assert list(ps.open(source)) == [{"share": 1.0, "name": "5", "raw": b"x"}] * 2


MISUSE = {
    "no values": ("add", "--in-place"),
    "two sources of values": ("add", "--set", "a=1", "--function", "json:dumps"),
    "a constant without a value": ("add", "--set", "a"),
    "a function without a module": ("add", "--function", "measure"),
    "a module that does not exist": ("add", "--function", "no_such_module:f", "--reads", "id"),
    "a function that does not exist": ("add", "--function", "json:no_such", "--reads", "id"),
    "a function without columns": ("add", "--function", "json:dumps"),
    "columns without a function": ("add", "--set", "a=1", "--reads", "id"),
    "a key for a function": ("add", "--function", "json:dumps", "--reads", "id", "--by", "id"),
    "another word for missing": ("add", "--set", "a=1", "--missing", "zero"),
    "two places": ("add", "--set", "a=1", "--in-place", "--into", "x.tfrecord"),
    "a table that does not exist": ("add", "--from", "nothing.parquet", "--in-place"),
    "drop without a name": ("drop", "--in-place"),
    "rename without a new name": ("rename", "id", "--in-place"),
    "replace of a missing field, stored next to the file": ("replace", "--set", "nope=1"),
    "bake without a place": ("bake",),
    "bake without overlays": ("bake", "--in-place"),
    "drop of a missing field": ("drop", "nope", "--in-place"),
    "rename of a missing field": ("rename", "nope=x", "--in-place"),
    "rename to a name that is taken": ("rename", "id=name", "--in-place"),
    "rename of two fields to one name": ("rename", "id=x", "name=x", "--in-place"),
    "replace of a missing field": ("replace", "--set", "nope=1", "--in-place"),
    "a name that is taken": ("add", "--set", "name=1", "--in-place"),
    "an option that does not exist": ("add", "--set", "a=1", "--colour", "red"),
}


@pytest.mark.parametrize("words", MISUSE.values(), ids=MISUSE.keys())
def test_misuse_ends_with_2_and_changes_nothing(single: Path, words: tuple[str, ...]) -> None:
    before = single.read_bytes()
    name, *rest = words
    ran = run("fields", name, single, *rest)
    assert ran.status == 2, ran.err
    assert ran.err
    assert ran.out == ""
    assert single.read_bytes() == before
    assert ps.overlays(single) == []


@pytest.mark.parametrize("name", ["add", "replace", "drop", "rename", "bake"])
def test_a_source_that_is_not_there_is_misuse(name: str, tmp_path: Path) -> None:
    words = {"drop": ("a",), "rename": ("a=b",), "bake": ()}.get(name, ("--set", "a=1"))
    assert run("fields", name, tmp_path / "nothing", *words, "--in-place").status == 2


def test_damage_is_a_problem_of_the_data(damaged: Path) -> None:
    ran = run("fields", "add", damaged, "--set", "a=1", "--in-place", "--json")
    assert ran.status == 1
    assert ran.document["error"]["type"] == "ChecksumError"


@pytest.mark.usefixtures("own_modules")
def test_an_error_of_the_function_is_shown_as_it_is(single: Path) -> None:
    before = single.read_bytes()
    given = ("--function", "lengths:fail", "--reads", "name", "--in-place")
    ran = run_process("fields", "add", single, *given, cwd=single.parent)
    assert ran.status == 1
    assert "KeyError: 'no such thing'" in ran.err
    assert single.read_bytes() == before


@pytest.mark.parametrize("name", ["add", "replace", "drop", "rename", "bake"])
def test_help_has_the_places_and_examples(name: str) -> None:
    shown = run("fields", name, "--help")
    assert shown.status == 0
    for word in ("--into", "--in-place", "--overwrite", "--verify", "--json", "Examples:"):
        assert word in shown.out
    assert shown.out.count(f"penstock fields {name} ") >= 2
    assert f"\n  {name} " in run("fields", "--help").out


def test_changes_without_a_place_are_stored_next_to_the_file(single: Path) -> None:
    before = single.read_bytes()
    for words in (
        ("add", single, "--set", "points=1"),
        ("replace", single, "--set", "points=2", "--where", "id >= 2"),
        ("rename", single, "points=rank", "id=number"),
        ("add", single, "--set", "other=x"),
        ("drop", single, "other"),
    ):
        ran = run("fields", *words)
        assert ran.status == 0, ran.err
    assert ps.open(single).select(["number", "rank"]).head(3).to_pylist() == [
        {"number": 0, "rank": 1},
        {"number": 1, "rank": 1},
        {"number": 2, "rank": 2},
    ]
    assert single.read_bytes() == before
    shown = run("fields", "list", single).out
    for line in ("points → rank", "id → number", "other", "dropped", "renamed"):
        assert line in shown
    found = json.loads(run("fields", "list", single, "--json").out)["overlays"]
    assert [one["dropped"] for one in found] == [[], [], [], [], ["other"]]
    assert found[2]["renamed"] == {"points": "rank", "id": "number"}


def test_the_key_may_have_another_name_in_the_table(shards: Path, tmp_path: Path) -> None:
    table = tmp_path / "of_others.csv"
    table.write_text("number,points\n" + "".join(f"{n},{n * 10}\n" for n in range(300)))
    assert run("fields", "add", shards, "--from", table, "--by", "id=number").status == 0
    assert column(shards, "points") == [n * 10 for n in range(300)]
    ran = run("fields", "add", shards, "--from", table, "--by", "id=nothing")
    assert ran.status == 1
    assert "the table has no such column; it has: number, points" in ran.err


# -- several sources, and patterns that the shell has expanded ------------------------------------


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    for n in range(2):
        ps.write({"id": [2 * n, 2 * n + 1], "label": [1, 1]}, f"t-{n}.tfrecord")
    return ["t-0.tfrecord", "t-1.tfrecord"]


def test_add_replace_and_bake_take_several_files(two: list[str]) -> None:
    ps.write({"score": [0, 1, 2, 3]}, "scores.parquet")
    assert run("fields", "add", *two, "--from", "scores.parquet").status == 0
    assert run("fields", "replace", *two, "--set", "label=7").status == 0
    assert run("fields", "bake", *two, "--into", "baked/").status == 0
    table = ps.open("baked").to_table().select(["id", "label", "score"])
    assert table.to_pydict() == {"id": [0, 1, 2, 3], "label": [7] * 4, "score": [0, 1, 2, 3]}
    assert run("fields", "add", "--set", "a=1").status == 2  # no source


@pytest.mark.parametrize(("verb", "word"), [("drop", "label"), ("rename", "label=class")])
def test_drop_and_rename_say_to_quote_a_pattern(two: list[str], verb: str, word: str) -> None:
    failed = run("fields", verb, *two, word, "--into", "o/")
    assert failed.status == 2
    assert "'t-1.tfrecord' is a file, but the name of a field is expected here" in failed.err
    (command,) = [line for line in failed.err.splitlines() if "try: penstock" in line]
    words = shlex.split(command.removeprefix("  try: penstock ").partition(",")[0])
    assert words[:3] == ["fields", verb, "*.tfrecord"]
    assert run(*words[:3], word, "--into", "o/").status == 0
    assert len(ps.open("o").schema.names) == 1 + (verb == "rename")


def test_a_field_with_the_name_of_a_file_is_a_field(two: list[str]) -> None:
    Path("label").mkdir()
    Path("nope").mkdir()
    assert run("fields", "drop", two[0], "label").status == 0
    assert "there is no field 'x=3'" in run("fields", "drop", two[0], "x=3").err


@pytest.mark.parametrize(
    "words",
    [("add", "--set", "a=1"), ("drop", "label"), ("rename", "label=c")],
    ids=lambda words: words[0],
)
def test_skipping_damage_is_refused_with_what_to_do(two: list[str], words: tuple[str, ...]) -> None:
    damage(two[0])
    failed = run("fields", words[0], two[0], *words[1:], "--damage", "skip")
    assert failed.status == 2
    assert "try: penstock repair SOURCE --into repaired/ first" in failed.err
    assert run("repair", two[0], "--into", "repaired/").status == 0
    assert run("fields", words[0], f"repaired/{two[0]}", *words[1:]).status == 0
    assert "--damage" not in run("fields", words[0], "--help").out


def test_baking_damaged_files_is_refused_with_what_to_do(two: list[str]) -> None:
    run("fields", "add", two[0], "--set", "a=1")
    damage(two[0])
    failed = run("fields", "bake", two[0], "--into", "b.tfrecord", "--damage", "skip")
    assert "try: penstock convert SOURCE TARGET --damage skip" in failed.err
    assert run("convert", two[0], "b.tfrecord", "--damage", "skip").status == 0
    assert ps.open("b.tfrecord").to_table().to_pydict() == {"id": [0], "label": [1], "a": [1]}


def damage(path: str) -> None:
    data = bytearray(Path(path).read_bytes())
    data[-8] ^= 1
    Path(path).write_bytes(data)
