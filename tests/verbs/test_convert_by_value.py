"""Files for each value of a column: `lang={lang}/{shard}.parquet`, as Hive, Spark, pyarrow and polars lay them out."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.storage import MemoryStorage
from penstock.verbs.convert import by_value, ranges

LANGS = ["en", "de", None, "a/b", "en", ".x", "__HIVE_DEFAULT_PARTITION__", "ü {k}", "de", "100%"]
ROWS = {"id": list(range(10)), "lang": LANGS, "year": [2023, 2024] * 5}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    ps.write(pa.table(ROWS), "s.parquet")
    return "s.parquet"


def rows(data: Any) -> list[dict[str, Any]]:
    """The records by their id, with their columns in one order."""
    found = [dict(sorted(row.items())) for row in data.to_pylist()]
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("ending", ["parquet", "arrow", "tfrecord"])
def test_opening_the_folder_gives_the_records_back(source: str, ending: str) -> None:
    made = ps.convert(source, f"out/lang={{lang}}/year={{year}}/{{shard}}.{ending}")
    back = ps.open("out")
    assert made.num_records == 10 and list(made.paths) == list(back.paths)
    assert back.schema.field("lang").type == pa.string()
    assert back.schema.field("year").type == pa.int64()
    assert ps.open(made.paths[0]).schema.names == ["id"]
    assert rows(back.to_table()) == rows(pa.table(ROWS))
    assert made.notes == ()


def test_pyarrow_and_polars_read_the_same(source: str) -> None:
    # They read the escaped text of null's name as null.
    ps.convert(source, "out/lang={lang}/year={year}/{shard}.parquet", where="id != 6")
    wanted = rows(pa.table(ROWS).filter(np.arange(10) != 6))
    assert rows(pq.read_table("out")) == wanted
    found = pl.scan_parquet("out/**/*.parquet", hive_partitioning=True).collect()
    assert rows(found.to_arrow()) == wanted


def test_the_names_are_those_of_hive(source: str) -> None:
    made = ps.convert(source, "out/lang={lang}/all.parquet")
    assert [path.split("/")[1] for path in made.paths] == [
        "lang=%2Ex",
        "lang=%5F_HIVE_DEFAULT_PARTITION__",
        "lang=100%25",
        "lang=__HIVE_DEFAULT_PARTITION__",
        "lang=a%2Fb",
        "lang=de",
        "lang=en",
        "lang=ü %7Bk%7D",
    ]


def test_no_value_leaves_its_folder(source: str) -> None:
    values = ["..", "../../x", "/etc", "a\0b", "{shard}", "*"]
    ps.write({"id": range(6), "v": values}, "bad.parquet")
    made = ps.convert("bad.parquet", "out/{v}/{shard}.parquet")
    assert all(path.count("/") == 2 and Path(path).is_file() for path in made.paths)
    assert sorted(v for path in made.paths for v in ps.open(path).to_table()["v"].to_pylist()) == (
        sorted(values)
    )


def test_shards_are_numbered_within_each_value(source: str) -> None:
    ps.write({"id": range(30), "k": [n % 2 for n in range(30)]}, "two.tfrecord")
    made = ps.convert("two.tfrecord", "a/k={k}/{shard}.tfrecord", shard_records=10, prove=True)
    assert [path[2:] for path in made.paths] == [
        f"k={k}/0000{n}.tfrecord" for k in (0, 1) for n in (0, 1)
    ]
    assert ps.open("a/k=1").to_table()["id"].to_pylist() == list(range(1, 30, 2))
    made = ps.convert("two.tfrecord", "b/k={k}/x.parquet", num_shards=2)
    assert made.paths[-1] == "b/k=1/x-00001-of-00002.parquet"
    assert ps.open("b").count("k == 1") == 15


def test_a_column_in_the_name_of_a_file_stays_in_it(source: str) -> None:
    made = ps.convert(source, "{year}.tfrecord")
    assert made.paths == ("2023.tfrecord", "2024.tfrecord")
    assert ps.open("2024.tfrecord").to_table()["year"].to_pylist() == [2024] * 5


def test_names_with_dashes_and_points_are_words(source: str) -> None:
    ps.write({"user-id": [1, 2], "cls.txt": ["a", "b"]}, "names.parquet")
    made = ps.convert("names.parquet", "out/user-id={user-id}/{cls.txt}.parquet")
    assert made.paths == ("out/user-id=1/a.parquet", "out/user-id=2/b.parquet")
    assert ps.convert("names.parquet", "{1,2}{3..4}.parquet").paths == ("{1,2}{3..4}.parquet",)


def test_other_choices_are_made_first(source: str) -> None:
    made = ps.convert(
        source,
        "out/jahr={jahr}/{shard}.parquet",
        where="id >= 3",
        shuffle=1,
        rename={"year": "jahr", "id": "n"},
        columns=["year", "id"],
    )
    back = ps.open("out").to_table()
    assert made.num_records == 7
    assert back.column_names == ["n", "jahr"]
    pairs = zip(back["n"].to_pylist(), back["jahr"].to_pylist(), strict=True)
    assert sorted(pairs) == [(n, 2023 + n % 2) for n in range(3, 10)]
    assert back["n"].to_pylist() != sorted(back["n"].to_pylist())


def test_a_type_that_the_names_do_not_give_back_is_noted(source: str) -> None:
    day = [dt.date(2024, 1, 1 + n) for n in range(3)]
    ps.write(pa.table({"id": range(3), "zip": ["007", "1", "2"], "day": day}), "t.parquet")
    made = ps.convert("t.parquet", "out/zip={zip}/day={day}/{shard}.parquet")
    assert [note.partition("; ")[2] for note in made.notes] == [
        "read it with types={'zip': 'string'}",
        "read it with types={'day': 'date32[day]'}",
    ]
    back = ps.open("out", types={"zip": "string", "day": "date32[day]"}).to_table()
    assert rows(back) == rows(ps.open("t.parquet").to_table())


def test_bytes_that_are_text_name_files_and_others_are_refused(source: str) -> None:
    ps.write({"id": [1, 2], "k": [b"a", b"b"]}, "b.tfrecord")
    assert len(ps.convert("b.tfrecord", "out/k={k}/{shard}.tfrecord").paths) == 2
    ps.write({"id": [1, 2], "k": [b"a", b"\xff"], "v": np.eye(2)}, "c.tfrecord")
    for word in ("k", "v"):
        with pytest.raises(ps.SchemaError, match="names of files") as caught:
            ps.convert("c.tfrecord", f"other/{{{word}}}/{{shard}}.tfrecord")
        assert caught.value.field == word
    assert not Path("other").exists()


@pytest.mark.parametrize("target", ["o/{nope}/{shard}.parquet", "o/{shard}/a.parquet"])
def test_a_word_that_is_no_column_is_refused_with_the_columns(source: str, target: str) -> None:
    with pytest.raises(ValueError, match=r"nothing replaces .* there are: id, lang, year"):
        ps.convert(source, target)
    assert not Path("o").exists()


@pytest.mark.parametrize(
    ("target", "how", "message"),
    [
        ("o/{lang}/", {}, r"such as o/{lang}/{shard:05d}.parquet"),
        ("o/{year}/{shard}.parquet", {"shard_bytes": 10}, "shard_records= or num_shards="),
        ("o/{year}/{shard}.parquet", {"where": "id > 99"}, "there are no records"),
        ("o/year={year}/x.parquet", {"columns": ["year"]}, "no other column"),
        ("o/{empty}/x.parquet", {}, "would be empty"),
        ("o/{long}/x.parquet", {}, "longer than"),
    ],
)
def test_what_cannot_be_written_is_refused(
    source: str, target: str, how: dict[str, Any], message: str
) -> None:
    ps.write({**ROWS, "empty": [""] * 10, "long": ["x" * 300] * 10}, "s2.parquet")
    with pytest.raises(ValueError, match=message):
        ps.convert("s2.parquet", target, **how)
    assert not Path("o").exists()


def test_too_many_values_are_refused(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_value, "_MOST_VALUES", 8)
    assert len(ps.convert(source, "o/{lang}.parquet").paths) == 8
    with pytest.raises(ValueError, match="first 10 records have 10 values of id, and at most 8"):
        ps.convert(source, "p/id={id}/{shard}.parquet")
    assert not Path("p").exists()


def test_nothing_is_seen_before_all_is_written(source: str) -> None:
    def stop(done: int, num_bytes: int, total: int) -> None:
        if done >= 6:
            raise KeyboardInterrupt

    target = "out/lang={lang}/year={year}/{shard}.parquet"
    with pytest.raises(KeyboardInterrupt):
        ps.convert(source, target, progress=stop)
    assert not list(Path("out").rglob("*.parquet")) and not list(Path("out").glob("lang=*"))
    made = ps.convert(source, target)  # goes on
    ps.convert(source, target.replace("out", "other"))
    for path in made.paths:
        assert Path(path).read_bytes() == Path(path.replace("out", "other")).read_bytes()
    with pytest.raises(FileExistsError, match="exists"):
        ps.convert(source, target)
    assert ps.convert(source, target, overwrite=True).paths == made.paths


def test_the_source_is_read_in_one_pass(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    passes, real = [], ranges.shuffled_between

    def counted(*args: Any, **how: Any) -> Any:
        passes.append(args)
        return real(*args, **how)

    monkeypatch.setattr(ranges, "shuffled_between", counted)
    ps.convert(source, "out/lang={lang}/{shard}.parquet", num_shards=2)
    assert len(passes) == 1


def test_files_go_to_a_store(source: str) -> None:
    store = MemoryStorage({})
    made = ps.convert(source, "out/lang={lang}/{shard}.parquet", target_storage=store)
    assert rows(ps.open("out", storage=store).to_table()) == rows(pa.table(ROWS))
    assert made.paths[-1] == "out/lang=ü %7Bk%7D/00000.parquet"
