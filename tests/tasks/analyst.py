"""An analyst asks questions in SQL, polars and pandas. Each reads only the columns that it needs."""

from pathlib import Path

import duckdb
import numpy as np
import polars as pl

import penstock as ps


def bytes_read(call):
    """The result of a call, and how many bytes it read from files. It needs /proc, as Linux has it."""
    file = Path("/proc/self/io")
    before = int(file.read_text().split()[1])
    result = call()
    return result, int(file.read_text().split()[1]) - before


rng = np.random.default_rng(0)
shops = np.array(["north", "south", "east"])[rng.integers(0, 3, 20_000)]
sales = {
    "shop": shops,
    "price": np.arange(20_000) % 100,
    **{f"reading_{n}": rng.random((20_000, 8)) for n in range(8)},
}
ps.write(sales, "sales.parquet", num_shards=4)
ps.write(sales, "sales.tfrecord", num_shards=4)
size = sum(Path(shard.path).stat().st_size for shard in ps.open("sales-*.parquet").shards)

ds = ps.open("sales-*.parquet")
assert bytes_read(ds.count)[0] == 20_000
assert ds.count('price >= 90 and shop == "east"') == int(
    ((sales["price"] >= 90) & (shops == "east")).sum()
)

# SQL that needs one of the ten columns.
data = ds.to_arrow_dataset()
found, read = bytes_read(lambda: duckdb.sql("select avg(price) from data").fetchall())
assert found == [(49.5,)]
assert read < size / 10, (read, size)
query = "select shop, count(*) from data where price < 10 group by shop order by shop"
expected = [
    (shop, int(((sales["price"] < 10) & (shops == shop)).sum()))
    for shop in ("east", "north", "south")
]
assert duckdb.sql(query).fetchall() == expected

# A lazy polars query.
lazy = ds.lazy().filter(pl.col("price") == 7).group_by("shop").len().sort("shop")
found, read = bytes_read(lazy.collect)
assert found.rows() == [
    (shop, int(((sales["price"] == 7) & (shops == shop)).sum()))
    for shop in ("east", "north", "south")
]
assert read < size / 10, (read, size)

# pandas.
frame = ds.to_table(columns=["shop", "price"], where="price == 99").to_pandas()
assert len(frame) == 200 and set(frame["shop"]) == {"east", "north", "south"}

# The same questions about TFRecord files. Counting reads only their indexes.
ds = ps.open("sales@4.tfrecord")
size = sum(shard.num_bytes for shard in ds.shards)
found, read = bytes_read(ds.count)
assert found == 20_000 and read < size / 20, (read, size)
data = ds.to_arrow_dataset()
assert duckdb.sql(query).fetchall() == expected
