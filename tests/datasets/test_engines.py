"""Query engines read only what they need: polars through `lazy`, duckdb and pyarrow through an Arrow dataset."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import penstock as ps
from damaged_groups import write_damaged
from penstock.columns.types import ImageType

NUM = 3000
WIDE = [f"c{number}" for number in range(30)]
ENDINGS = ("tfrecord", "parquet", "arrow", "npz")


@pytest.fixture(params=ENDINGS)
def data(request: pytest.FixtureRequest, tmp_path: Path) -> ps.Dataset:
    table = pa.table({"id": np.arange(NUM), "label": np.arange(NUM) % 10, "c": np.ones(NUM)})
    ps.write(table, tmp_path / f"data.{request.param}")
    return ps.open(tmp_path / f"data.{request.param}")


@pytest.fixture
def columns_read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    read: list[Any] = []
    for name in ("scan", "cautious_scan"):
        scan = getattr(ps.Dataset, name)

        def noted(
            self: ps.Dataset, columns: Any = None, *rest: Any, scan: Any = scan, **more: Any
        ) -> Any:
            read.append(columns)
            return scan(self, columns, *rest, **more)

        monkeypatch.setattr(ps.Dataset, name, noted)
    return read


def test_polars_reads_the_columns_of_a_query(data: ps.Dataset, columns_read: list[Any]) -> None:
    lazy = data.lazy()
    assert lazy.collect_schema() == pl.DataFrame(data).schema
    columns_read.clear()
    found = lazy.filter(pl.col("label") == 3).select("id").collect()
    assert found["id"].to_list() == list(range(3, NUM, 10))
    assert [set(columns) for columns in columns_read] == [{"id", "label"}]
    assert lazy.slice(10, 5).filter(pl.col("id") > 12).collect()["id"].to_list() == [13, 14]
    assert lazy.filter(pl.col("id") > 12).head(2).collect()["id"].to_list() == [13, 14]
    assert lazy.select(pl.len()).collect().item() == NUM
    assert lazy.group_by("label").agg(pl.col("id").sum()).collect().height == 10
    assert lazy.collect().equals(pl.DataFrame(data))


def test_duckdb_reads_the_columns_of_a_query(data: ps.Dataset, columns_read: list[Any]) -> None:
    numbers = data.to_arrow_dataset()
    query = "select sum(id), count(*) from numbers where label = 3 and id < 100"
    assert duckdb.sql(query).fetchall() == [(sum(range(3, 100, 10)), 10)]
    assert duckdb.sql("select count(*) from numbers").fetchall() == [(NUM,)]
    assert duckdb.sql("select id from numbers limit 3").fetchall() == [(0,), (1,), (2,)]
    assert columns_read == [["id"], ["id"], ["id"]]  # the condition reads "label" itself


def test_an_arrow_dataset_does_what_pyarrows_datasets_do(data: ps.Dataset) -> None:
    found, other = data.to_arrow_dataset(), pads.dataset(data.to_table())
    where = (pc.field("label") == 3) & (pc.field("id") > 1000)
    assert isinstance(found, pads.Dataset)
    assert found.schema == other.schema
    assert found.to_table() == other.to_table()
    assert found.to_table(columns=["id"], filter=where) == other.to_table(
        columns=["id"], filter=where
    )
    named = {"twice": pc.field("id") * 2, "label": pc.field("label")}
    assert found.to_table(columns=named, filter=where) == other.to_table(
        columns=named, filter=where
    )
    assert found.count_rows() == NUM
    assert found.count_rows(filter=where) == other.count_rows(filter=where)
    assert found.head(7) == other.head(7)
    assert found.take([5, 3, 2999]) == other.take([5, 3, 2999])
    assert found.filter(where).to_table() == other.to_table(filter=where)
    assert found.sort_by([("id", "descending")]).to_table()["id"][0].as_py() == NUM - 1
    assert pickle.loads(pickle.dumps(found)).to_table() == other.to_table()
    for call in (
        found.get_fragments,
        lambda: found.join(other, "id"),
        lambda: found.replace_schema(None),
    ):
        with pytest.raises(NotImplementedError, match="to_table"):
            call()


def test_pyarrow_writes_the_records_it_is_given(data: ps.Dataset, tmp_path: Path) -> None:
    found = data.to_arrow_dataset()
    chosen = found.scanner(columns=["id", "label"], filter=pc.field("label") < 2)
    for number, given in enumerate((found, chosen)):
        into = tmp_path / str(number)
        pads.write_dataset(given, into, format="parquet", partitioning=["label"])
        written = pads.dataset(into, partitioning=pads.partitioning(field_names=["label"]))
        expected = given.to_table().sort_by("id")
        assert written.to_table().sort_by("id").select(["id"]) == expected.select(["id"])
    assert pa.table(found) == found.to_table()


@pytest.mark.parametrize(
    "read",
    [
        lambda found: pads.Scanner.from_dataset(found).to_table(),
        lambda found: acero.Declaration("scan", acero.ScanNodeOptions(found)).to_table(),
        lambda found: pads.dataset([found, found]).to_table(),
        lambda found: pads.dataset(pa.table({"id": [1]})).join(found, "id").to_table(),
    ],
)
def test_what_reads_with_arrows_own_readers_is_an_error(data: ps.Dataset, read: Any) -> None:
    with pytest.raises(NotImplementedError, match="to_reader"):
        read(data.to_arrow_dataset())


def test_counts_of_a_scanner_read_no_records(data: ps.Dataset, columns_read: list[Any]) -> None:
    found = data.to_arrow_dataset()
    assert found.scanner().count_rows() == found.count_rows() == NUM
    assert columns_read == []
    assert found.scanner(filter=pc.field("label") == 3).count_rows() == NUM / 10


@pytest.fixture
def odd(tmp_path: Path) -> ps.Dataset:
    """Three records whose types Arrow has only as extension types."""
    pixels = pa.array([b"P5 1 1 255 %c" % n for n in range(3)])
    numbers = np.arange(18, dtype=np.float32).reshape(3, 2, 3)
    table = {
        "image": pa.ExtensionArray.from_storage(ImageType("ppm"), pixels),
        "about": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a": 1}', None, "[]"])),
        "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(numbers),
        "label": pa.array(["cat", "dog", "cat"]).dictionary_encode(),
    }
    ps.write(pa.table(table), tmp_path / "odd.arrow")
    return ps.open(tmp_path / "odd.arrow")


def test_engines_compute_with_images_json_and_tensors(odd: ps.Dataset) -> None:
    lazy = odd.lazy()
    types = {"image": pl.Binary, "about": pl.String, "tensor": pl.Array(pl.Float32, 6)}
    assert {name: lazy.collect_schema()[name] for name in types} == types
    assert lazy.select(pl.col("image").bin.size()).collect().to_series().to_list() == [12] * 3
    assert lazy.filter(pl.col("about") == '{"a": 1}').collect()["label"].to_list() == ["cat"]
    first = lazy.select(pl.col("about").str.json_path_match("$.a")).collect().to_series()
    assert first.to_list() == ["1", None, None]
    assert lazy.select(pl.col("tensor").arr.sum()).collect().to_series().to_list() == [15, 51, 87]
    data = odd.to_arrow_dataset()
    query = "select octet_length(image), about->>'a', tensor[1], label from data limit 1"
    assert duckdb.sql(query).fetchall() == [(12, "1", 0.0, "cat")]
    frame = odd.to_table().to_pandas()
    assert [type(value) for value in frame.iloc[0]] == [bytes, str, np.ndarray, str]
    assert frame["label"].dtype == "category"


def test_a_column_is_computed_beside_tensors(odd: ps.Dataset) -> None:
    assert odd.filter('label == "none"').to_table().num_rows == 0
    more = odd.with_columns({"a": "about.a"})
    assert [record["a"] for record in more.head(3).to_pylist()] == [1, None, None]


def test_an_expression_in_odd_words_reads_what_it_needs(tmp_path: Path) -> None:
    names = ["a", "ab", "a b", "b", "FieldPath", "ü"]
    table = pa.table({name: [n, n + 1] for n, name in enumerate(names)})
    ps.write(table, tmp_path / "odd.arrow")
    found = ps.open(tmp_path / "odd.arrow").to_arrow_dataset()
    for name in names:
        assert found.count_rows(filter=pc.field(name) == names.index(name)) == 1
    assert found.count_rows(filter=pc.field(1) == 1) == 1
    assert found.count_rows(filter=pc.field("a").isin([0]) | pc.field("b").is_null()) == 1


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts the bytes that a process reads"
)
def test_bytes_read(tmp_path: Path) -> None:
    """Counting reads only an index, and selecting one column of thirty reads only that column. The footer of a Parquet
    file (12 kB here) is read twice: it may be that of a manifest."""
    table = pa.table({name: np.arange(30_000) * 7919 for name in WIDE})
    for ending in ("parquet", "arrow", "tfrecord"):
        ps.write(table, tmp_path / f"wide.{ending}")

    def share_of(ending: str, query: Any) -> float:
        """The bytes that a query reads, divided by the bytes of the file."""
        path = tmp_path / f"wide.{ending}"
        query(ps.open(path))  # imported modules are read, too
        before = bytes_so_far()
        query(ps.open(path))
        return (bytes_so_far() - before) / path.stat().st_size

    for ending in ("parquet", "arrow"):
        assert share_of(ending, lambda ds: ds.lazy().select(pl.col("c7").sum()).collect()) < 0.1
        assert share_of(ending, lambda ds: ds.to_arrow_dataset().to_table(columns=["c7"])) < 0.1
        few = {"columns": ["c7"], "filter": pc.field("c9") > 5}
        assert share_of(ending, lambda ds, few=few: ds.to_arrow_dataset().to_table(**few)) < 0.1
        assert share_of(ending, lambda ds: ds.count("c7 > 5")) < 0.1
        assert share_of(ending, lambda ds: list(ds.scan())) > 0.9
    assert share_of("tfrecord", lambda ds: ds.count()) < 0.1
    assert share_of("parquet", lambda ds: ds.count()) < 0.1


def bytes_so_far() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts the bytes that a process reads"
)
@pytest.mark.parametrize("ending", ["tar", "tfrecord", "rec", "msgpack"])
def test_a_file_with_an_index_is_read_once(ending: str, tmp_path: Path) -> None:
    columns = {
        "tar": {"cls": np.arange(400), "bin": [bytes(20_000)] * 400},
        "rec": {
            "label": np.ones(400, np.float32),
            "image": [b"\xff\xd8\xff" + bytes(20_000)] * 400,
        },
    }
    other = {"label": np.arange(400), "data": [bytes(20_000)] * 400}
    table = pa.table(columns.get(ending, other))
    path = tmp_path / f"data.{ending}"
    ps.write(table, path, format={"rec": "recordio"}.get(ending))
    ds = ps.open(path)
    for _ in range(2):  # the first time, imported modules are read, too
        before = bytes_so_far()
        assert ds.lazy().select(table.schema.names[0]).collect().height == 400
        assert bytes_so_far() - before < 1.05 * path.stat().st_size
        before = bytes_so_far()
        assert sum(map(len, ds.scan())) == 400
        assert bytes_so_far() - before < 1.05 * path.stat().st_size


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts the bytes that a process reads"
)
def test_a_limit_stops_reading_early(tmp_path: Path) -> None:
    """The first records of 24 MB take at most two chunks of 2 MB, and some of a third."""
    table = pa.table({"id": np.arange(1200), "blob": [bytes(10_000)] * 1200})
    for number in range(2):
        ps.write(table, tmp_path / f"{number}.tfrecord")

    def read_by(query: Any) -> int:
        query(ps.open(tmp_path))  # imported modules are read, too
        before = bytes_so_far()
        assert len(query(ps.open(tmp_path))) == 5
        return bytes_so_far() - before

    def by_duckdb(ds: ps.Dataset) -> Any:
        found = ds.to_arrow_dataset()
        assert found.schema == ds.schema
        return duckdb.sql("select id from found limit 5").fetchall()

    assert read_by(lambda ds: ds.lazy().select("id").head(5).collect()) < 7_000_000
    assert read_by(lambda ds: ds.to_arrow_dataset().head(5, columns=["id"])) < 7_000_000
    assert read_by(by_duckdb) < 13_000_000  # its threads may ask for several batches at once
    assert read_by(lambda ds: ds.to_table(columns=["id"], limit=5)) < 7_000_000
    assert read_by(lambda ds: ds.to_table(columns=["id"], where="id > 3", limit=5)) < 7_000_000


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts the bytes that a process reads"
)
def test_a_limit_reads_one_row_group_of_parquet(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"id": np.arange(2000), "blob": [rng.bytes(5_000) for _ in range(2000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=200)
    for query in (
        lambda: ps.open(tmp_path / "a.parquet").lazy().head(5).collect(),
        lambda: ps.open(tmp_path / "a.parquet").head(5),
        lambda: ps.open(tmp_path / "a.parquet").to_arrow_dataset().head(5),
    ):
        query()  # imported modules are read, too
        before = bytes_so_far()
        assert len(query()) == 5
        assert bytes_so_far() - before < 1_500_000  # a row group has 1 MB


STOPPED = {
    "a limit": "print(duckdb.sql('select id from found limit 5').fetchall())",
    "a result that is kept": "kept = duckdb.connect().execute('select * from found'); kept.fetchone()",
    "a reader that is kept": "kept = found.scanner().to_reader(); kept.read_next_batch()",
    "batches that are kept": "kept = found.to_batches(); next(kept)",
    "polars": "print(ds.lazy().head(5).collect())",
}


@pytest.mark.parametrize("stopped", STOPPED)
def test_a_process_that_stops_reading_early_exits(stopped: str, tmp_path: Path) -> None:
    table = pa.table({"id": np.arange(1200), "blob": [bytes(10_000)] * 1200})
    ps.write(table, tmp_path / "a.tfrecord")
    lines = f"""
import duckdb, penstock as ps
ds = ps.open({str(tmp_path / "a.tfrecord")!r})
found = ds.to_arrow_dataset()
{STOPPED[stopped]}
"""
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", lines], check=False, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, b"")


def test_engines_skip_row_groups_by_their_statistics(tmp_path: Path) -> None:
    """One page of the other row groups is damaged, so reading one of them is an error."""
    path = tmp_path / "a.parquet"
    ids = np.arange(1000)
    table = pa.table({"id": ids, "name": [f"{n:04}" for n in ids]})
    write_damaged(table, path, [*range(3), *range(4, 10)])
    ds = ps.open(path)
    with pytest.raises(ps.ChecksumError):
        ds.to_table()
    found = ds.to_arrow_dataset()
    rows = list(range(350, 360))
    near = (pc.field("id") >= 350) & (pc.field("id") < 360)
    assert found.to_table(filter=near)["id"].to_pylist() == rows
    assert ds.count(near) == 10
    assert found.to_table(filter=pc.field("name") == "0350")["id"].to_pylist() == [350]
    query = "select id from found where id >= 350 and id < 360 order by id"
    assert duckdb.sql(query).fetchall() == [(n,) for n in rows]
    close = pl.col("id").is_between(350, 359)
    assert ds.lazy().filter(close).collect()["id"].to_list() == rows
    assert ds.lazy().filter(pl.col("id").is_in([350, 351])).collect().height == 2
    assert ds.lazy().filter((pl.col("name") == "0350") & (pl.col("id") > 0)).collect().height == 1


def test_engines_find_nan_which_statistics_leave_out(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1.0, float("nan"), 2.0]}), path)
    assert ps.open(path).lazy().filter(pl.col("x") > 5).collect().height == 1
    found = ps.open(path).to_arrow_dataset()
    assert len(duckdb.sql("select x from found where x > 5").fetchall()) == 1


def test_statistics_of_a_column_say_nothing_of_a_computed_one_of_its_name(tmp_path: Path) -> None:
    ps.write({"id": [0, 1], "label": [None, 1]}, tmp_path / "a.parquet")
    ds = ps.open(tmp_path / "a.parquet").with_columns(
        {"label": "coalesce(label, 0)", "id": "9 - id"}
    )
    assert ds.lazy().filter(pl.col("label") == 0).collect()["id"].to_list() == [9]
    assert ds.lazy().filter(pl.col("id").is_in([9, 8])).collect().height == 2


def test_names_of_folders_say_nothing_of_other_columns_of_their_name(tmp_path: Path) -> None:
    for year in (2024, 2025):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        ps.write({"a": [year + 5]}, folder / "x.tfrecord")
    ds = ps.open(tmp_path)
    for changed in (
        ds.with_columns({"year": "year + 1"}),
        ds.rename({"a": "year", "year": "a"}).with_columns({"year": "year - 4"}),
    ):
        found = changed.lazy().filter(pl.col("year") == 2026).collect()
        assert found.height == 1
