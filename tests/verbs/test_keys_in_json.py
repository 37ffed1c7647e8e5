"""`sort`, `dedupe` and `split` by a value inside a struct or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import penstock as ps
from penstock.cli.program import program

RECORDS = [{"url": f"u{n * 5 % 7}", "in": {"n": -n}} for n in range(20)]


def texts_of(path: Path) -> list[dict[str, Any]]:
    table = ps.open(path).to_table()
    assert table.schema.names == ["json", "size"]
    return [json.loads(text) for text in table["json"].combine_chunks().storage.to_pylist()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    data = {
        "json": pa.array(map(json.dumps, RECORDS), pa.json_()),
        "size": [{"width": n % 3} for n in range(20)],
    }
    ps.write(data, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_sort_takes_paths(path: Path) -> None:
    out = path.parent / "out.parquet"
    ps.sort(path, ["size.width", "json.url"], into=out)
    expected = sorted(range(20), key=lambda n: (n % 3, RECORDS[n]["url"]))
    assert texts_of(out) == [RECORDS[n] for n in expected]
    ps.sort(path, "json.in.n", into=out, overwrite=True)
    assert texts_of(out) == RECORDS[::-1]


def test_dedupe_takes_paths(path: Path) -> None:
    out = path.parent / "out.parquet"
    made = ps.dedupe(path, "json.url", into=out)
    assert made.notes == ("13 of 20 records were left out",)
    assert texts_of(out) == RECORDS[:7]


def test_split_takes_paths(path: Path) -> None:
    shares = {"train": 0.5, "val": 0.5}
    parts = ps.split(path, shares, by="json.url")
    sides = [{json.loads(record["json"])["url"] for record in part} for part in parts.values()]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 7
    whole = ps.open(path).with_columns({"w": "size.width"})
    same = ps.split(whole, shares, stratify="w")
    for name, part in ps.split(path, shares, stratify="size.width").items():
        assert part.to_table() == same[name].select(["json", "size"]).to_table()


def test_damage_is_skipped_where_a_path_decides(tmp_path: Path) -> None:
    texts = pa.array([f'{{"n": {n}}}' for n in (3, 1, 2, 1)])
    ps.write({"json": texts, "id": range(4)}, tmp_path / "a.tfrecord", index=False)
    data = bytearray((tmp_path / "a.tfrecord").read_bytes())
    data[len(data) // 4 + 20] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(data)
    ds = ps.open(tmp_path / "a.tfrecord", damage="skip", types={"json": "json"})
    out = tmp_path / "b.parquet"
    ps.sort(ds, "json.n", into=out)
    assert ps.open(out).to_table()["id"].to_pylist() == [3, 2, 0]
    assert ps.open(out).schema.names == ds.schema.names


def test_wrong_paths_are_refused_before_anything_is_written(path: Path) -> None:
    for by, said in {
        "x.y": "no such column; there are: json, size",
        "size.depth": "size has no field depth",
        "json.nope": "no value for it.*\n.*by= with the name of a column that is computed by cast",
    }.items():
        with pytest.raises(ps.SchemaError, match=said):
            ps.dedupe(path, by, into=path.parent / "x.parquet")
    assert not (path.parent / "x.parquet").exists()


def test_the_command_line_takes_paths(path: Path) -> None:
    for verb, first in (("sort", "u0"), ("dedupe", "u0")):
        out = path.parent / f"{verb}.parquet"
        ran = CliRunner().invoke(program, [verb, str(path), "--by", "json.url", "--into", str(out)])
        assert ran.exit_code == 0, ran.output
        assert texts_of(out)[0]["url"] == first
    ran = CliRunner().invoke(
        program, ["sort", str(path), "--by", "json.nope", "--into", "x.parquet"]
    )
    assert (ran.exit_code, "try: --by with the name of a column" in ran.stderr) == (1, True)
