"""Hints of overlays that drop, rename and replace fields."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from steps import Case, Cases, cli, rows

import penstock as ps

SHARDS = ["a.tfrecord", "b.tfrecord"]


def a_dropped_field_is_read() -> Case:
    ps.write({"a": [1], "b": [2]}, "a.tfrecord")
    ps.drop_fields("a.tfrecord", "b")
    schema = pa.schema([("b", pa.int64())])

    def advised() -> None:
        assert "drop-b" in cli("fields list a.tfrecord")
        assert rows("a.tfrecord", schema=schema, overlays=False) == [{"b": 2}]

    return Case(lambda: ps.open("a.tfrecord", schema=schema), advised)


def _a_damaged_file_with_fields() -> None:
    ps.write({"a": range(5)}, "a.tfrecord")
    ps.add_fields("a.tfrecord", {"b": range(5)})
    data = bytearray(Path("a.tfrecord").read_bytes())
    data[-5] ^= 1  # the last byte of the last payload
    Path("a.tfrecord").write_bytes(data)


def a_repair_would_lose_fields() -> Case:
    _a_damaged_file_with_fields()

    def kept() -> None:
        cli("convert a.tfrecord whole-a.tfrecord --damage skip")
        assert rows("whole-a.tfrecord") == [{"a": n, "b": n} for n in range(4)]

    return Case(lambda: ps.repair("a.tfrecord", into="b.tfrecord"), kept)


def a_repair_leaves_fields_out() -> Case:
    _a_damaged_file_with_fields()

    def without() -> None:
        ps.repair("a.tfrecord", in_place=True, overlays=False)
        assert rows("a.tfrecord") == [{"a": n} for n in range(4)]

    return Case(lambda: ps.repair("a.tfrecord", in_place=True), without)


def _renamed_in_one() -> None:
    for number, path in enumerate(SHARDS):
        ps.write({"a": [number]}, path)
    ps.rename_fields(SHARDS[1], {"a": "b"})


def a_change_of_one_file_is_removed() -> Case:
    _renamed_in_one()

    def removed() -> None:
        cli("fields remove a.tfrecord b.tfrecord rename-a")
        assert rows(SHARDS) == [{"a": 0}, {"a": 1}]

    return Case(lambda: ps.open(SHARDS), removed, REMOVED)


def a_change_of_one_file_is_not_read() -> Case:
    _renamed_in_one()

    def without() -> None:
        assert rows(SHARDS, overlays=False) == [{"a": 0}, {"a": 1}]

    return Case(lambda: ps.open(SHARDS), without, REMOVED)


def a_bake_of_one_file_is_finished() -> Case:
    for number, path in enumerate(SHARDS):
        ps.write({"a": [number]}, path)
    ps.rename_fields(SHARDS, {"a": "b"})
    ps.bake_fields(SHARDS[0], in_place=True)

    def finished() -> None:
        ps.bake_fields(SHARDS[1], in_place=True)
        assert rows(SHARDS) == [{"b": 0}, {"b": 1}]

    return Case(lambda: ps.open(SHARDS), finished, REMOVED)


def _doubled(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"a": [2 * value.as_py() for value in batch["a"]]}


def _doubled_in_one() -> Callable[..., Any]:
    for path in SHARDS:
        ps.write({"a": [1]}, path)
    ps.replace_fields(SHARDS[0], _doubled, reads=["a"])
    return lambda source=SHARDS: ps.replace_fields(source, _doubled, reads=["a"])


def an_interrupted_change_is_made_again() -> Case:
    change = _doubled_in_one()

    def again() -> None:
        cli("fields remove a.tfrecord b.tfrecord a")
        change()
        assert rows(SHARDS) == [{"a": 2}] * 2

    return Case(change, again, TWICE)


def the_other_file_is_changed() -> Case:
    change = _doubled_in_one()

    def others() -> None:
        change(SHARDS[1])
        assert rows(SHARDS) == [{"a": 2}] * 2

    return Case(change, others, TWICE)


def an_overlay_is_opened_as_data() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord")
    ps.add_fields("a.tfrecord", {"b": [3, 4]})
    (overlay,) = Path(".a.tfrecord.penstock-fields").iterdir()

    def advised() -> None:
        assert rows("a.tfrecord") == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]

    hint = "open a.tfrecord, which shows these fields, too"
    return Case(lambda: ps.open(overlay), advised, hint)


def an_overlay_in_a_folder_is_opened_as_data() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord")
    (overlay,) = ps.add_fields("a.tfrecord", {"b": [3, 4]}, overlays="mine").paths

    def advised() -> None:
        assert rows("a.tfrecord", overlays="mine") == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]

    hint = "open a.tfrecord with overlays=, which shows these fields, too"
    return Case(lambda: ps.open(overlay), advised, hint)


def a_journal_is_opened_as_data() -> Case:
    journal = Path(".penstock-convert-0123456789abcdef.json")
    journal.write_text("{}")

    def advised() -> None:
        cli("clean . --remove --older-than 0")
        assert not journal.exists()

    hint = (
        "repeat that command, which continues; penstock clean --remove removes what is left of it"
    )
    return Case(lambda: ps.open(journal), advised, hint)


def an_overlay_in_a_store_of_a_file_here() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord")

    def advised() -> None:
        ps.add_fields("a.tfrecord", {"b": 3}, overlays="mine")
        assert rows("a.tfrecord", overlays="mine") == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]

    return Case(lambda: ps.add_fields("a.tfrecord", {"b": 3}, overlays="s3://a/b"), advised)


REMOVED = "penstock fields remove SOURCE rename-a; if bake_fields was interrupted, call it again; or open(..., overlays=False)"
TWICE = "if a call was interrupted, penstock fields remove SOURCE a, then call again; otherwise change the files with it and those without it in separate calls"

CASES: Cases = {
    "'overlays= with a folder on this machine'": an_overlay_in_a_store_of_a_file_here,
    """f'{again} writes the intact records with its fields, if the index still fits the file; overlays=False repairs without them'""": (
        a_repair_would_lose_fields,
        a_repair_leaves_fields_out,
    ),
    "own.hint": (
        an_overlay_is_opened_as_data,
        an_overlay_in_a_folder_is_opened_as_data,
        a_journal_is_opened_as_data,
    ),
    "'open(..., overlays=False); penstock fields list shows the overlays'": a_dropped_field_is_read,
    "f'{remove}; if bake_fields was interrupted, call it again; or open(..., overlays=False)'": (
        a_change_of_one_file_is_removed,
        a_change_of_one_file_is_not_read,
        a_bake_of_one_file_is_finished,
    ),
    "f'if a call was interrupted, {remove}, then call again; otherwise change the files with it and those without it in separate calls'": (
        an_interrupted_change_is_made_again,
        the_other_file_is_changed,
    ),
}
