"""`ds.with_columns`: a view with columns that are computed from the others."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.datasets.dataset import Dataset

COUNT = 50
COLUMNS = {
    "twice": "id * 2",
    "share": "id / 4",
    "caption": "meta.caption",
    "iso": "meta.cam.iso",
    "is_late": "id >= 25",
    "size": "len(text)",
    "id": "id + 100",
}


def record(n: int) -> dict[str, Any]:
    meta = {"caption": f"c{n}", "cam": {"iso": n * 100}} if n % 3 else {"caption": None}
    return {"id": n, "text": "x" * (n % 5), "meta": json.dumps(meta)}


def computed(n: int) -> dict[str, Any]:
    meta = json.loads(record(n)["meta"])
    return {
        "id": n + 100,
        "text": record(n)["text"],
        "meta": record(n)["meta"],
        "twice": n * 2,
        "share": n / 4,
        "caption": meta["caption"],
        "iso": meta.get("cam", {}).get("iso"),
        "is_late": n >= 25,
        "size": n % 5,
    }


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    folder = tmp_path_factory.mktemp("computed")
    table = pa.Table.from_pylist([record(n) for n in range(COUNT)])
    types = {"meta": "json", "text": "string"}
    for name in ("a.tfrecord", "a.tfrecord.gz", "a.arrow"):
        ps.write(table, folder / name)
    pq.write_table(table, folder / "a.parquet", row_group_size=7)
    over = folder / "over.tfrecord"
    ps.write(table.drop_columns(["text"]), over)
    ps.add_fields(over, {"text": table["text"]})
    ps.write(table, folder / "s-{shard}.tfrecord", shard_records=20)
    kept = ps.open(folder / "a.tfrecord", types=types).filter("id >= 0")
    return {
        "tfrecord": ps.open(folder / "a.tfrecord", types=types),
        "gzip": ps.open(folder / "a.tfrecord.gz", types=types),
        "skip": ps.open(folder / "a.tfrecord", types=types, damage="skip"),
        "arrow": ps.open(folder / "a.arrow", types=types),
        "parquet": ps.open(folder / "a.parquet", types=types),
        "overlay": ps.open(over, types=types),
        "shards": ps.open(str(folder / "s-*.tfrecord"), types=types),
        "filter": kept,
    }


KINDS = ("tfrecord", "gzip", "skip", "arrow", "parquet", "overlay", "shards", "filter")


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_computed_columns_are_the_same_in_every_way_of_reading(
    sets: dict[str, Dataset], kind: str, data: st.DataObject
) -> None:
    names = data.draw(st.permutations(sorted(COLUMNS)))
    names = names[: data.draw(st.integers(1, len(names)))]
    ds = sets[kind].with_columns({name: COLUMNS[name] for name in names})
    stored = record(0).keys()
    assert set(ds.schema.names) == {*stored, *names}
    shown = data.draw(st.lists(st.sampled_from(ds.schema.names), unique=True, min_size=1))
    ds = ds.select(shown)

    def expected(n: int) -> dict[str, Any]:
        return {c: computed(n)[c] if c in names else record(n)[c] for c in shown}

    assert ds.to_table().to_pylist() == [expected(n) for n in range(COUNT)]
    wanted = data.draw(st.lists(st.integers(0, COUNT - 1), max_size=9))
    assert ds.take(wanted).to_pylist() == [expected(n) for n in wanted]
    again = pickle.loads(pickle.dumps(ds))
    assert again[7] == expected(7)
    assert again.fingerprint == ds.fingerprint


def test_a_computed_column_is_a_column_for_every_verb(
    sets: dict[str, Dataset], tmp_path: Path
) -> None:
    ds = sets["shards"].with_columns({"iso": "cast(meta.cam.iso, 'int32')".replace("'", '"')})
    assert ds.schema.field("iso").type == pa.int32()
    assert ds.count(where="iso > 4000") == sum(n % 3 > 0 and n > 40 for n in range(COUNT))
    ps.sort(ds, "iso", into=tmp_path / "sorted.parquet", descending=True)
    assert ps.open(tmp_path / "sorted.parquet")[0]["id"] == 49
    parts = ps.split(ds, {"a": 0.5, "b": 0.5}, by="iso")
    assert sum(map(len, parts.values())) == COUNT
    kept = ds.filter("iso is not null").select(["iso"])
    loader = ps.Loader(kept, 8, order=ps.Shuffled(1))
    seen = np.concatenate([batch["iso"] for batch in loader])
    assert sorted(seen) == [n * 100 for n in range(COUNT) if n % 3]
    assert len(kept.with_columns({"half": "iso / 2"}).rename({"half": "h"}).to_table()) == 33


def test_other_expressions_are_other_data(sets: dict[str, Dataset]) -> None:
    one, other = (
        sets["tfrecord"].with_columns({"x": text}) for text in ("id * 2", "id * 3")
    )  # fmt: skip
    assert one.fingerprint != other.fingerprint
    loader = ps.Loader(one.select(["x"]), 8)
    next(iter(loader))
    with pytest.raises(ps.StateError):
        ps.Loader(other.select(["x"]), 8).load_state_dict(loader.state_dict())


def test_errors_name_the_file_the_record_and_the_column(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    texts = [json.dumps({"x": n if n != 1500 else 2.5}) for n in range(2000)]
    ps.write({"meta": texts}, path)
    ds = ps.open(path, types={"meta": "json"})
    mixed = ds.with_columns({"x": "meta.x"})
    for read in (mixed.to_table, lambda: mixed[1500]):
        with pytest.raises(ps.SchemaError, match="int64, the type of the first records") as caught:
            read()
        assert (caught.value.file, caught.value.record) == (str(path), 1500)
        assert caught.value.field == "x"
    assert mixed[1499] == {"meta": texts[1499], "x": 1499}
    wide = ds.with_columns({"x": 'cast(meta.x, "float64")'})
    assert wide[1500]["x"] == 2.5
    with pytest.raises(ps.SchemaError, match="so its type is unknown"):
        ds.with_columns({"x": "meta.y"})
    assert ds.with_columns({"x": 'cast(meta.y, "string")'})[0]["x"] is None
    with pytest.raises(ps.SchemaError, match="no such column"):
        ds.with_columns({"x": "nothing"})
    with pytest.raises(ValueError, match="expected"):
        ds.with_columns({"x": "meta.x +"})
    with pytest.raises(TypeError, match="name: expression"):
        ds.with_columns({"x": 3})  # pyright: ignore[reportArgumentType]


def test_a_json_member_of_a_tar_gives_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for n in range(5):
            body = json.dumps({"caption": f"c{n}", "size": [n, 2 * n]}).encode()
            info = tarfile.TarInfo(f"{n:03}.json")
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    ds = ps.open(path).with_columns({"caption": "json.caption", "size": "json.size"})
    assert ds.select(["caption", "size"]).to_table().to_pylist() == [
        {"caption": f"c{n}", "size": [n, 2 * n]} for n in range(5)
    ]


PRICES = ["n/a" if n % 100 == 7 else "" if n % 100 == 9 else f"{n}.5" for n in range(1500)]
KNOWN = [(n, float(price)) for n, price in enumerate(PRICES) if price not in ("n/a", "")]
CAST = {"f": 'cast(price, "float64")'}
PRICED = 'price not in ["n/a", ""]'


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.tfrecord"
    ps.write({"id": range(len(PRICES)), "price": PRICES}, path)
    return path


def pairs(table: pa.Table) -> list[tuple[int, float]]:
    return list(zip(table["id"].to_pylist(), table["f"].to_pylist(), strict=True))


def test_a_column_is_not_computed_for_records_that_a_condition_leaves_out(prices: Path) -> None:
    ds = ps.open(prices).with_columns(CAST).filter(PRICED)
    assert pairs(ds.to_table()) == KNOWN
    assert pairs(pickle.loads(pickle.dumps(ds)).to_table()) == KNOWN
    assert pairs(ds.take(np.arange(len(ds)))) == KNOWN
    loader = ps.Loader(ds, 16, order=ps.Shuffled(1), columns=["f"])
    assert sorted(f for batch in loader for f in batch["f"].tolist()) == [f for _, f in KNOWN]
    assert ds.filter("f > 100").count() == sum(f > 100 for _, f in KNOWN)
    assert ds.schema == ps.open(prices).filter(PRICED).with_columns(CAST).schema


def test_a_condition_on_a_computed_column_sees_its_values(prices: Path) -> None:
    ds = ps.open(prices).with_columns({"id": "id + 1000", "known": PRICED})
    assert ds.filter("id < 1010").to_table()["id"].to_pylist() == list(range(1000, 1010))
    assert ds.filter("known").count() == len(KNOWN)


@pytest.mark.parametrize(
    "how", [{}, {"sample": 100}, {"sample_rest": 0.5, "seed": 3}, {"shuffle": 7}], ids=str
)
def test_convert_chooses_before_it_computes(
    prices: Path, tmp_path: Path, how: dict[str, Any]
) -> None:
    ds = ps.open(prices)
    ps.convert(ds.with_columns(CAST), tmp_path / "one.arrow", where=PRICED, **how)
    found = pairs(ps.open(tmp_path / "one.arrow").to_table())
    assert set(found) <= set(KNOWN)
    ps.convert(prices, tmp_path / "plain.arrow", where=PRICED, **how)
    wanted = ps.open(tmp_path / "plain.arrow").to_table()["id"].to_pylist()
    assert [n for n, _ in found] == wanted


@pytest.mark.parametrize("damage", ["error", "skip"])
@pytest.mark.parametrize("where", [None, 'price != ""'])
def test_an_error_names_the_column_that_is_computed_and_the_record(
    prices: Path, damage: Any, where: str | None
) -> None:
    ds = ps.open(prices, damage=damage).with_columns(CAST)
    ds = ds if where is None else ds.filter(where)
    with pytest.raises(ps.SchemaError) as caught:
        ds.to_table()
    error = caught.value
    assert (error.file, error.field, error.record) == (str(prices), "f", 7)
    assert error.message.startswith(f"{CAST['f']} cannot be computed: ")
    assert "'n/a'" in error.message


def test_an_expression_that_fits_no_value_is_refused_at_once(prices: Path) -> None:
    with pytest.raises(ps.SchemaError, match=r"price / 2 cannot be computed: .*not numbers") as no:
        ps.open(prices).with_columns({"half": "price / 2"})
    assert no.value.field == "half"
