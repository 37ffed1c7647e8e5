"""Hints of the verbs that change files, or compare them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from steps import Case, Cases, rows

import frames
import penstock as ps
from cli.running import run
from damaging import flipped
from overlaying import keep
from penstock.verbs.fields.rewrite_journal import Journal

SHARDS = ["a.tfrecord", "b.tfrecord"]


def typed(command: str) -> str:
    """Run a command that a hint prints. It must succeed; returns its output."""
    done = run(*command.split()[1:])
    assert done.status == 0, done.err
    return done.out


def images(*names: str) -> list[bytes]:
    """Image files, one for each name."""
    pixels = np.arange(len(names) * 192, dtype=np.uint8).reshape(-1, 8, 8, 3)
    return list(ps.encode_images(pixels, "png").to_pylist())


def three_damaged() -> None:
    """Three records, the second of which is damaged."""
    summary = ps.write({"id": [1, 2, 3], "more": [4, 5, 6]}, "a.tfrecord")
    data = Path("a.tfrecord").read_bytes()
    Path("a.tfrecord").write_bytes(flipped(data, data.index(b"more", len(data) // 3) * 8))
    assert summary.num_records == 3


# -- fields ---------------------------------------------------------------------------------------


def unwanted_column() -> Case:
    ps.write({"id": [1, 2], "label": [0, 0]}, "a.tfrecord")
    table = pa.table({"id": [1, 2], "label": [7, 8], "remark": ["a", "b"]})

    def replaced(**options: Any) -> None:
        ps.replace_fields("a.tfrecord", table, by="id", in_place=True, **options)

    def advised() -> None:
        replaced(columns=["label"])
        assert rows("a.tfrecord") == [{"id": 1, "label": 7}, {"id": 2, "label": 8}]

    return Case(replaced, advised)


def empty_cell() -> Case:
    ps.write({"id": [1, 2], "label": [5, 6]}, "a.tfrecord")
    Path("new.csv").write_text("id,label\n1,7\n2,\n")

    def replaced(**options: Any) -> list[Any]:
        ps.replace_fields("a.tfrecord", "new.csv", by="id", into="b.tfrecord", **options)
        return ps.open("b.tfrecord").to_table()["label"].to_pylist()

    def advised() -> None:
        assert replaced(missing="keep") == [7, 6]
        assert replaced(missing="null", overwrite=True) == [7, None]

    return Case(replaced, advised)


def unknown_field() -> Case:
    ps.write({"a": [1]}, "a.tfrecord")

    def added() -> None:
        ps.add_fields("a.tfrecord", {"b": [1]}, into="b.tfrecord")
        assert rows("b.tfrecord") == [{"a": 1, "b": 1}]

    return Case(lambda: ps.replace_fields("a.tfrecord", {"b": [1]}, into="b.tfrecord"), added)


def _with_fields_beside() -> Callable[..., Any]:
    ps.write({"a": [1, 2], "c": [7, 8]}, "a.tfrecord")
    ps.add_fields("a.tfrecord", {"b": [3, 4]})
    return lambda source="a.tfrecord": ps.drop_fields(source, "c", into="c.tfrecord")


def kept_fields_are_baked() -> Case:
    drop = _with_fields_beside()

    def baked() -> None:
        typed("penstock fields bake --in-place a.tfrecord")
        drop()
        assert rows("c.tfrecord") == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]

    return Case(drop, baked)


def kept_fields_are_changed_beside() -> Case:
    drop = _with_fields_beside()

    def beside() -> None:
        ps.drop_fields("a.tfrecord", "c")
        assert rows("a.tfrecord") == [{"a": 1, "b": 3}, {"a": 2, "b": 4}]

    return Case(drop, beside)


def kept_fields_are_left_behind() -> Case:
    drop = _with_fields_beside()

    def without() -> None:
        drop(ps.open("a.tfrecord", overlays=False))
        assert rows("c.tfrecord") == [{"a": 1}, {"a": 2}]

    return Case(drop, without)


def _of_two_types() -> Callable[..., Any]:
    for number, path in enumerate(SHARDS):
        ps.write({"a": [number]}, path)
    keep(SHARDS[0], new=pa.array([5]))
    keep(SHARDS[1], new=pa.array(["x"]))
    return lambda **options: rows(SHARDS, **options)


FIRST_REMOVED = "penstock fields remove a.tfrecord new, or open(..., overlays=False)"
SECOND_REMOVED = "penstock fields remove b.tfrecord new, or open(..., overlays=False)"


def kept_fields_of_two_types_are_removed() -> Case:
    read = _of_two_types()

    def removed() -> None:
        typed("penstock fields remove b.tfrecord new")
        assert read() == [{"a": 0, "new": 5}, {"a": 1, "new": None}]

    return Case(read, removed, SECOND_REMOVED)


def kept_fields_of_two_types_are_not_read() -> Case:
    read = _of_two_types()

    def without() -> None:
        assert read(overlays=False) == [{"a": 0}, {"a": 1}]

    return Case(read, without, SECOND_REMOVED)


def _of_another_state() -> Callable[..., Any]:
    ps.write({"a": [1, 2]}, "a.tfrecord")
    keep("a.tfrecord", new=pa.array([5, 6]))
    ps.write({"a": [3]}, "a.tfrecord", overwrite=True)
    return lambda **options: rows("a.tfrecord", **options)


def kept_fields_of_another_state_are_removed() -> Case:
    read = _of_another_state()

    def removed() -> None:
        typed("penstock fields remove a.tfrecord new")
        assert read() == [{"a": 3}]

    return Case(read, removed, FIRST_REMOVED)


def kept_fields_of_another_state_are_not_read() -> Case:
    read = _of_another_state()

    def without() -> None:
        assert read(overlays=False) == [{"a": 3}]

    return Case(read, without, FIRST_REMOVED)


def there_already() -> Case:
    ps.write({"a": [1]}, "a.tfrecord")

    def shown() -> None:
        ps.add_fields("a.tfrecord", {"a": [5]}, replace=True)
        assert rows("a.tfrecord") == [{"a": 5}]
        assert rows("a.tfrecord", overlays=False) == [{"a": 1}]

    return Case(lambda: ps.add_fields("a.tfrecord", {"a": [5]}), shown)


def values_and_functions() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord")

    def doubled(batch: pa.RecordBatch) -> Any:
        return pa.array([2 * value for value in batch["a"].to_pylist()])

    def both() -> None:
        fields = {"b": doubled, "c": pa.array([3, 4])}
        ps.add_fields("a.tfrecord", fields, reads=["a"], in_place=True)

    def one_after_another() -> None:
        ps.add_fields("a.tfrecord", {"b": doubled}, reads=["a"], in_place=True)
        ps.add_fields("a.tfrecord", {"c": pa.array([3, 4])}, in_place=True)
        assert rows("a.tfrecord") == [{"a": 1, "b": 2, "c": 3}, {"a": 2, "b": 4, "c": 4}]

    return Case(both, one_after_another)


def _half_done() -> tuple[str, Callable[[], Any]]:
    """The journal of a change of two shards that was killed after the first, and that change."""

    class Killed(BaseException):
        pass

    def killed(*_: Any) -> None:
        raise Killed

    for number, path in enumerate(SHARDS):
        ps.write({"a": [number], "b": [7]}, path)

    def rename() -> Any:
        return ps.rename_fields(SHARDS, {"a": "c"}, in_place=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "finish", killed)
        with pytest.raises(Killed):
            rename()
    (journal,) = (name for name in os.listdir(".") if name.endswith(".json"))
    return journal, rename


def an_unfinished_change_is_finished() -> Case:
    _, rename = _half_done()

    def again() -> None:
        rename()
        ps.drop_fields(SHARDS, "b", in_place=True)
        assert rows(SHARDS) == [{"c": 0}, {"c": 1}]

    return Case(lambda: ps.drop_fields(SHARDS, "b", in_place=True), again)


def an_unfinished_change_is_left() -> Case:
    journal, _ = _half_done()

    def left() -> None:
        Path(journal).unlink()
        for path in SHARDS:
            ps.drop_fields(path, "b", in_place=True)
        assert [rows(path) for path in SHARDS] == [[{"c": 0}], [{"a": 1}]]

    return Case(lambda: ps.drop_fields(SHARDS, "b", in_place=True), left)


# -- damage, and what follows its repair ----------------------------------------------------------


def fields_of_what_is_damaged() -> Case:
    three_damaged()

    def repaired() -> None:
        typed("penstock repair --in-place a.tfrecord")
        ps.drop_fields("a.tfrecord", "more", in_place=True)
        assert rows("a.tfrecord") == [{"id": 1}, {"id": 3}]

    skipping = ps.open("a.tfrecord", damage="skip")
    return Case(lambda: ps.drop_fields(skipping, "more", into="b.tfrecord"), repaired)


def keys_of_what_is_damaged() -> Case:
    three_damaged()
    ps.write({"id": [3, 1], "more": [6, 9]}, "b.tfrecord")

    def repaired() -> None:
        typed("penstock repair a.tfrecord --into repaired.tfrecord")
        found = ps.diff("repaired.tfrecord", "b.tfrecord", by="id")
        assert [field.name for field in found.fields if field.num_records] == ["more"]
        assert (found.records.num_differ, found.records.num_only_in_a) == (1, 0)

    skipping = ps.open("a.tfrecord", damage="skip")
    return Case(lambda: ps.diff(skipping, "b.tfrecord", by="id"), repaired)


def a_damaged_folder() -> Case:
    data = {"image": images("a", "b"), "id": [1, 2]}
    ps.write(data, "pets", format="imagefolder", table="csv")
    names = sorted(Path("pets").glob("*.png"))
    names[0].write_bytes(b"")

    def repaired() -> None:
        ps.repair("pets", into="whole")
        assert [row["id"] for row in rows("whole")] == [2]

    return Case(lambda: ps.repair("pets", in_place=True), repaired)


# -- append ---------------------------------------------------------------------------------------


def append_to_a_folder_of_images() -> Case:
    ps.write({"image": images("a")}, "pets", format="imagefolder")

    def another() -> None:
        ps.write({"image": images("a", "b")}, "more", format="imagefolder")
        assert [row["image"] for row in rows(["pets", "more"])] == images("a") + images("a", "b")

    return Case(lambda: ps.append({"image": images("a", "b")}, "pets"), another)


# -- indexes --------------------------------------------------------------------------------------


def a_text_index_of_another_file() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord")
    typed("penstock index --text a.tfrecord")
    payloads = [b"one", b"three", b""]
    Path("a.tfrecord").write_bytes(frames.file_of(payloads))

    def made() -> None:
        typed("penstock index --text a.tfrecord")
        ps.index("a.tfrecord", from_text=True)
        lines = Path("a.tfrecord.idx").read_text().splitlines()
        assert [int(line.split()[0]) for line in lines] == frames.starts_of(payloads)[:3]

    return Case(
        lambda: ps.index("a.tfrecord", from_text=True), made, "penstock index --text a.tfrecord"
    )


REWRITTEN = "penstock verify a.npy, then index --force if it was rewritten"


def checksums_of_what_was_rewritten() -> Case:
    np.save("a.npy", np.arange(3))
    typed("penstock index --checksums a.npy")
    np.save("a.npy", np.arange(4))

    def forced() -> None:
        assert run("verify", "a.npy").status == 1
        typed("penstock index --checksums a.npy --force")
        assert run("verify", "a.npy").status == 0
        assert rows("a.npy", checksums="index") == [{"data": value} for value in range(4)]

    return Case(lambda: ps.index("a.npy", checksums=True), forced, REWRITTEN)


# -- files that are not one dataset ---------------------------------------------------------------


def _of_two_kinds(ending: str, other: dict[str, list[int]]) -> None:
    for number in (1, 2, 3):
        ps.write({"a": [number]}, f"x{number}.parquet")
        ps.write(other, f"{'xy'[ending == '.parquet']}{number}{ending}")


def files_of_two_formats() -> Case:
    _of_two_kinds(".npz", {"a": [7]})

    def one_kind() -> None:
        assert rows("*.npz") == [{"a": 7}] * 3
        assert rows("*.parquet") == [{"a": 1}, {"a": 2}, {"a": 3}]

    return Case(lambda: ps.open("*"), one_kind, "open one kind alone: '*.npz' or '*.parquet'")


AS_A_LIST = "open the files of one kind, as a list"


def some_files_of_two_formats() -> Case:
    _of_two_kinds(".npz", {"a": [7]})

    def listed() -> None:
        assert rows(["x1.parquet", "x2.parquet"]) == [{"a": 1}, {"a": 2}]
        assert rows(["x1.npz", "x2.npz"]) == [{"a": 7}] * 2

    return Case(lambda: ps.open("x[12]*"), listed, AS_A_LIST)


def files_of_two_kinds() -> Case:
    _of_two_kinds(".parquet", {"b": [7]})

    def one_kind() -> None:
        assert rows("x*.parquet") == [{"a": 1}, {"a": 2}, {"a": 3}]
        assert rows("y*.parquet") == [{"b": 7}] * 3

    return Case(lambda: rows("*"), one_kind, "open one kind alone: 'x*.parquet' or 'y*.parquet'")


def some_files_of_two_kinds() -> Case:
    _of_two_kinds(".parquet", {"b": [7]})

    def listed() -> None:
        assert rows(["x1.parquet", "x2.parquet"]) == [{"a": 1}, {"a": 2}]
        assert rows(["y1.parquet", "y2.parquet"]) == [{"b": 7}] * 2

    return Case(lambda: rows("[xy][12]*"), listed, AS_A_LIST)


def repaired_under_the_name_of_another_format() -> Case:
    ps.write({"a": [1, 2]}, "a.tfrecord")

    def advised() -> None:
        ps.repair("a.tfrecord", into="whole.tfrecord")
        ps.convert("whole.tfrecord", "whole.parquet")
        assert rows("whole.parquet") == [{"a": 1}, {"a": 2}]

    return Case(lambda: ps.repair("a.tfrecord", into="whole.parquet"), advised)


CASES: Cases = {
    "f'write {better} instead, and convert that with penstock.convert'": (
        repaired_under_the_name_of_another_format
    ),
    "'columns= with the columns of the table to use; add_fields adds new fields'": (
        unknown_field,
        unwanted_column,
    ),
    '\'missing="keep" leaves the old value of such a record, missing="null" removes it\'': empty_cell,
    "f'run {bake} first, or leave out into= and in_place= to keep the change next to the files too; open(..., overlays=False) drops them'": (
        kept_fields_are_baked,
        kept_fields_are_changed_beside,
        kept_fields_are_left_behind,
    ),
    "_without(path, overlay)": (
        kept_fields_of_two_types_are_removed,
        kept_fields_of_two_types_are_not_read,
    ),
    "_without(source.path, overlay)": (
        kept_fields_of_another_state_are_removed,
        kept_fields_of_another_state_are_not_read,
    ),
    "'replace=True shows the new values instead of the old values'": there_already,
    "'add them in two calls'": values_and_functions,
    "f'repeat that call with the same files in the same order, the same values and the same function (its code may not have changed), or delete {path} to keep each file as it is now'": (
        an_unfinished_change_is_finished,
        an_unfinished_change_is_left,
    ),
    "'run penstock repair --in-place SOURCE first'": fields_of_what_is_damaged,
    "'penstock repair SOURCE --into NEW, then compare NEW'": keys_of_what_is_damaged,
    "'repair(..., into=...)'": a_damaged_folder,
    "'write the new records to another folder, and open both'": append_to_a_folder_of_images,
    "command('penstock', 'index', '--text', data_path)": a_text_index_of_another_file,
    "command('penstock', 'verify', source.path) + ', then index --force if it was rewritten'": (
        checksums_of_what_was_rewritten
    ),
    "_advice(groups.values(), storage)": (files_of_two_formats, some_files_of_two_formats),
    "_advice(named.values(), storage)": (files_of_two_kinds, some_files_of_two_kinds),
}
