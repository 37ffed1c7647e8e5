"""Views of damaged datasets: filters, splits and choices by number see exactly the records that can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.contract.format import SkippedRegion

NUM = 200
"""Records of each of three files. Those of the second file are damaged."""


def write_files(folder: Path, ending: str, *, index: bool) -> str:
    for file in range(3):
        ids = np.arange(NUM) + 1000 * file
        table = {"id": ids, "label": ids % 7, "data": [b"DATA%06d" % n * 9 for n in ids.tolist()]}
        ps.write(table, folder / f"{file}.{ending}", index=index)
    return str(folder / f"*.{ending}")


def flip(path: Path, *places: int) -> None:
    data = bytearray(path.read_bytes())
    for at in places:
        data[at] ^= 1
    path.write_bytes(data)


def payload(path: Path, record: int) -> int:
    return path.read_bytes().index(b"DATA%06d" % (1000 + record))


def head(path: Path, record: int) -> int:
    """The length of a TFRecord's payload. All records of these files have the same size."""
    return record * (path.stat().st_size // NUM)


def opened(source: str, index: str = "auto") -> ps.Dataset:
    return ps.open(source, damage="skip", index=index)


def ids_of(ds: ps.Dataset) -> list[int]:
    return ds.to_table()["id"].to_pylist()


def loaded(ds: ps.Dataset, order: Any) -> list[int]:
    return [number for batch in ps.Loader(ds, 32, order=order) for number in batch["id"].tolist()]


def check_view(view: ps.Dataset, wanted: list[int], damage: list[SkippedRegion]) -> None:
    """Check that all ways of reading a view give the same records, and that it lists the damage once."""
    assert ids_of(view) == wanted
    assert len(view) == len(wanted)
    assert view.take(np.arange(len(wanted)))["id"].to_pylist() == wanted
    assert loaded(view, ps.Sequential()) == wanted
    for order in (ps.Shuffled(1), ps.Blocked(1)):
        assert sorted(loaded(view, order)) == wanted
    assert places(view) == [(one.file, one.start_byte, one.end_byte) for one in damage]


def places(ds: ps.Dataset) -> list[tuple[str, int, int]]:
    found = [(one.file, one.start_byte, one.end_byte) for one in ds.damage]
    return sorted(found)


@pytest.fixture(
    params=[
        (ending, where, with_index, index)
        for ending, where in [
            ("tfrecord", "payload"),
            ("tfrecord", "head"),
            ("tfrecord", "lost head"),
            ("tar", "member"),
            ("msgpack", "end"),
            ("parquet", "end"),
            ("arrow", "end"),
        ]
        for with_index in (False, True)
        for index in ("auto", "never")
    ],
    ids=lambda param: "-".join(map(str, param)),
)
def source(request: Any, tmp_path: Path) -> tuple[str, str]:
    """Three files, of which the second is damaged, and the option `index`."""
    ending, where, with_index, index = request.param
    pattern = write_files(tmp_path, ending, index=with_index)
    path = tmp_path / f"1.{ending}"
    if where == "payload":
        flip(path, payload(path, 50), payload(path, 51), payload(path, 150))
    elif where == "member":
        flip(path, payload(path, 50) - 500, payload(path, 150) - 500)
    elif where == "head":  # such records can be restored
        flip(path, head(path, 50), payload(path, 150))
    elif (
        where == "lost head"
    ):  # such records are lost, if there is no index, and later ones get other numbers
        flip(path, head(path, 50), payload(path, 50), payload(path, 150))
    else:
        path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    return pattern, index


def test_a_filter_has_the_records_that_can_be_read(source: tuple[str, str]) -> None:
    whole = opened(*source)
    wanted = [n for n in ids_of(whole) if n % 7 > 3]
    assert whole.damage
    check_view(opened(*source).filter("label > 3"), wanted, sorted_damage(whole))
    assert opened(*source).count("label > 3") == len(wanted)
    once_more = opened(*source).filter("label > 3").filter("label > 4").subset(range(0, 40, 2))
    check_view(once_more, [n for n in wanted if n % 7 > 4][:40:2], sorted_damage(whole))


def sorted_damage(ds: ps.Dataset) -> list[SkippedRegion]:
    return sorted(ds.damage, key=lambda one: (one.file, one.start_byte, one.end_byte))


@pytest.mark.parametrize("how", [{}, {"by": "id"}, {"stratify": "label"}])
def test_a_split_has_the_records_that_can_be_read(
    source: tuple[str, str], how: dict[str, Any]
) -> None:
    whole, ds = opened(*source), opened(*source)
    wanted = ids_of(whole)
    parts = ps.split(ds, {"train": 0.7, "val": 0.3}, **how)
    assert places(ds) == places(whole)
    assert sorted(number for part in parts.values() for number in ids_of(part)) == wanted
    if not how:
        assert len(parts["train"]) == round(0.7 * len(wanted))
    for part in parts.values():
        check_view(part, ids_of(part), sorted_damage(whole))
    some = parts["train"].filter("label > 3")
    check_view(some, [n for n in ids_of(parts["train"]) if n % 7 > 3], sorted_damage(whole))


def test_verbs_write_the_chosen_records_that_can_be_read(
    source: tuple[str, str], tmp_path: Path
) -> None:
    whole = opened(*source)
    wanted = ids_of(whole)
    made = tmp_path / "made"
    made.mkdir()
    out = made / "out.tfrecord"

    def written() -> list[int]:
        return ps.open(out).to_table()["id"].to_pylist()

    choices: list[dict[str, Any]] = [
        {"where": "label > 3"},
        {"sample": 0.5},
        {"sample_rest": 0.5},
        {"shuffle": 1},
    ]
    for chosen in choices:
        ds = opened(*source)
        ps.convert(ds, out, overwrite=True, prove=True, **chosen)
        assert places(ds) == places(whole)
        found = written()
        assert set(found) <= set(wanted)
        half = round(len(wanted) * 0.5)
        by_condition = sum(n % 7 > 3 for n in wanted)
        counts = {"where": by_condition, "sample": half, "sample_rest": len(wanted) - half}
        assert len(found) == counts.get(next(iter(chosen)), len(wanted))
    ps.sort(opened(*source), "id", descending=True, into=out, overwrite=True)
    assert written() == wanted[::-1]
    ps.dedupe(opened(*source), "label", into=out, overwrite=True)
    assert written() == wanted[:7]
    ps.dedupe(opened(*source), into=out, overwrite=True)
    assert written() == wanted
    parts = ps.write_splits(opened(*source), made / "s-{split}.tfrecord", {"a": 0.5, "b": 0.5})
    assert sum(one.num_records for one in parts.values()) == len(wanted)
    both = [number for name in "ab" for number in ids_of(ps.open(made / f"s-{name}.tfrecord"))]
    assert sorted(both) == wanted


def test_damage_in_an_overlaid_file_keeps_the_numbers_of_the_records(tmp_path: Path) -> None:
    pattern = write_files(tmp_path, "tfrecord", index=True)
    ps.add_fields(pattern, {"twice": lambda batch: np.asarray(batch["id"]) * 2}, reads=["id"])
    path = tmp_path / "1.tfrecord"
    flip(path, payload(path, 50), payload(path, 51))
    table = opened(pattern).filter("twice > 2000").to_table()
    good = [n for n in range(1001, 2200) if n % 1000 < NUM and n not in (1050, 1051)]
    assert table["id"].to_pylist() == good
    view = opened(pattern).filter("twice > 2000")
    assert len(view) == table.num_rows
    taken = view.take(np.arange(len(view)))
    assert taken["id"].to_pylist() == table["id"].to_pylist()
    assert taken["twice"].to_pylist() == [2 * n for n in table["id"].to_pylist()]


def test_a_condition_on_the_names_of_folders_leaves_damaged_records_out(tmp_path: Path) -> None:
    for year in ("year=1", "year=2"):
        (tmp_path / year).mkdir()
        write_files(tmp_path / year, "tfrecord", index=True)
        path = tmp_path / year / "1.tfrecord"
        flip(path, payload(path, 50))
    ds = ps.open(tmp_path, damage="skip")
    view = ds.filter("year == 1")
    assert len(view) == 3 * NUM - 1
    assert view.take(np.arange(len(view)))["id"].to_pylist() == ids_of(view)
    assert len(loaded(view, ps.Shuffled(0))) == 3 * NUM - 1
    assert len(view.damage) == 1


def test_a_view_needs_damage_to_be_skipped_not_stopped_at(tmp_path: Path) -> None:
    view = ps.open(write_files(tmp_path, "tfrecord", index=True), damage="stop").filter("id > 3")
    assert ids_of(view)
    with pytest.raises(ps.UnsupportedError, match='damage="skip"'):
        len(view)
