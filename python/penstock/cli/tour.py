"""The chapters of `penstock demo`, in order."""

from __future__ import annotations

import gzip
import importlib.util
import os
import platform
import shutil
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import describe, tables
from penstock.cli import demo_data, tour_tensorflow
from penstock.cli.narrate import Narrator

_TIMES = 3
"""Short runs are repeated this often, and the fastest counts."""
_TAKEN = 256


def machine() -> dict[str, Any]:
    """Return facts about the machine on which the figures are measured."""
    return {
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
    }


def run(tour: Narrator, num_records: int, *, with_tensorflow: bool) -> None:
    """Run all chapters in the current folder."""
    table = demo_data.examples(num_records)
    where = machine()
    tour.say(
        f"""penstock opens training data in place. This tour makes a small data set in {os.getcwd()}
        and shows what can be done with it. Every figure is measured in this run, on
        {where["cores"]} cores ({where["system"]} {where["processor"]}, Python {where["python"]}).
        The files have just been written, so reading them seldom waits for a disk. Short runs are
        repeated {_TIMES} times, and the fastest counts."""
    )
    _write(tour, table)
    _look(tour)
    _random_access(tour, table)
    _scan(tour, table)
    _other_libraries(tour)
    _damage(tour)
    _compressed(tour, table.slice(0, num_records // 4))
    _convert(tour)
    if with_tensorflow:
        tour.chapter("Compared with TensorFlow")
        if importlib.util.find_spec("tensorflow") is None:
            tour.say(
                """TensorFlow is not installed here. With it, this chapter reads the files back
                through TensorFlow, and times both."""
            )
        else:
            paths = list(ps.open("train-*.tfrecord").paths)
            tour_tensorflow.compare(tour, paths, "train.tfrecord.gz", num_records)
    _end(tour)


def _write(tour: Narrator, table: pa.Table) -> None:
    tour.chapter("Write")
    tour.say(
        f"""{describe.records(len(table))}, each a tf.train.Example with five features, into four
        TFRecord shards. Shards get their names when all of them are complete and on disk."""
    )

    def write(table: pa.Table) -> ps.Summary:
        return ps.write(table, "train.tfrecord", num_shards=4, overwrite=True)

    made, taken = tour.run(write, table)
    tour.printed(", ".join(made.paths[:2]) + f", … {describe.size(made.num_bytes)}")
    tour.figure("write, synced to disk", taken, made.num_records, made.num_bytes)
    tour.say("And 300 images, as bytes.")

    def write_images(table: pa.Table) -> ps.Summary:
        return ps.write(table, "pictures.tfrecord", overwrite=True)

    tour.run(write_images, demo_data.pictures(300))


def _look(tour: Narrator) -> None:
    tour.chapter("Look")
    tour.say("Format, compression and fields are detected from the content.")
    tour.command("penstock info 'train-*.tfrecord'")
    tour.command("penstock schema 'train-*.tfrecord'")
    tour.command("penstock head -n 4 'train-*.tfrecord'")
    tour.say("Bytes are shown by what they contain.")
    tour.command("penstock head -n 4 pictures.tfrecord")
    tour.command("penstock stats --columns label,vector,tokens 'train-*.tfrecord'")
    tour.say("Every record has two checksums. This verifies them all:")
    tour.command("penstock verify 'train-*.tfrecord'")


def _random_access(tour: Narrator, table: pa.Table) -> None:
    tour.chapter("Random access")
    tour.say(
        """A TFRecord file has no table of contents, so penstock makes one. For this it reads the headers of the
        records, not their payloads."""
    )

    def index() -> list[str]:
        return ps.index("train-*.tfrecord", force=True)

    paths, taken = tour.run(index, times=_TIMES)
    num_bytes = sum(os.path.getsize(path) for path in paths)
    each = num_bytes / len(table)
    tour.printed(f"{len(paths)} indexes, {describe.size(num_bytes)}, {each:.1f} bytes a record")
    tour.figure("index", taken, len(table))
    tour.say(f"Now {_TAKEN} random records, verified and decoded to columns, 20 times:")
    _take(tour, "train-*.tfrecord", table, "random access")


def _take(tour: Narrator, source: str, table: pa.Table, what: str) -> None:
    ds = ps.open(source)
    draws = np.random.default_rng(22).integers(0, len(ds), (20, _TAKEN))

    def take(ds: ps.Dataset, draws: np.ndarray) -> list[pa.RecordBatch]:
        return [ds.take(numbers) for numbers in draws]

    batches, taken = tour.run(take, ds, draws, times=_TIMES)
    tour.figure(what, taken, draws.size)
    is_same = _is_same(batches[0], table.take(pa.array(draws[0])))
    tour.check(f"{what} returns what was written", is_same)


def _scan(tour: Narrator, table: pa.Table) -> None:
    tour.chapter("Read everything")
    num_bytes = sum(os.path.getsize(path) for path in ps.open("train-*.tfrecord").paths)

    def scan_columns() -> int:
        ds = ps.open("train-*.tfrecord")
        return sum(batch.num_rows for batch in ds.scan(batch_records=1024))

    def scan_one() -> float:
        ds = ps.open("train-*.tfrecord", columns=["label"])
        labels = [batch["label"].to_numpy() for batch in ds.scan()]
        return float(np.concatenate(labels).mean())

    tour.say("All columns in Arrow batches; both checksums of every record are verified:")
    seen, taken = tour.run(scan_columns, times=_TIMES)
    tour.figure("scan, all columns", taken, seen, num_bytes)
    tour.say("One column as NumPy; the other columns are skipped without decoding them:")
    mean, taken = tour.run(scan_one, times=_TIMES)
    tour.printed(f"mean label: {mean:.4f}")
    tour.figure("scan, one column to NumPy", taken, len(table), num_bytes)
    expected = float(table["label"].to_numpy().mean())
    tour.check("the mean is the same as before writing", mean == expected)


def _other_libraries(tour: Narrator) -> None:
    tour.chapter("Other libraries")

    def in_polars(ds: ps.Dataset) -> Any:
        import polars as pl

        return pl.DataFrame(ds).group_by("label").len().sort("label").head(3)

    def in_duckdb(ds: ps.Dataset) -> Any:  # noqa: ARG001  duckdb finds it by its name
        import duckdb

        return duckdb.sql("select label, count(*) from ds group by label order by label limit 3")

    def in_pandas(ds: ps.Dataset) -> Any:
        import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

        return pd.DataFrame.from_arrow(ds)["label"].value_counts().sort_index().head(3)

    tour.say("A Dataset is an Arrow stream, which other libraries read.")
    ds = ps.open("train-*.tfrecord", columns=["label"])
    for name, read in (("polars", in_polars), ("duckdb", in_duckdb), ("pandas", in_pandas)):
        if importlib.util.find_spec(name) is None:
            tour.say(f"{name} is not installed here.")
            continue
        try:
            found, _ = tour.run(read, ds)
            tour.printed(str(found))
        except (AttributeError, ImportError) as error:
            tour.printed(f"this {name} cannot: {error}")  # an older version, without Arrow streams


def _damage(tour: Narrator) -> None:
    tour.chapter("Damage")
    good = ps.open("train-*.tfrecord").paths[0]
    shutil.copyfile(good, "damaged.tfrecord")
    place = os.path.getsize(good) // 2
    with open("damaged.tfrecord", "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    tour.say(f"In a copy of the first shard, one bit of byte {place} is flipped.")
    tour.command("penstock stats damaged.tfrecord")
    status = tour.command("penstock verify damaged.tfrecord")
    tour.check("verify ends with exit status 1", status == 1)
    tour.say("The other records can still be read, and the skipped region is reported:")

    def skip() -> tuple[int, list[ps.SkippedRegion]]:
        ds = ps.open("damaged.tfrecord", damage="skip")
        num_records = sum(batch.num_rows for batch in ds.scan())
        return num_records, ds.damage

    (num_records, regions), _ = tour.run(skip)
    tour.printed(f"{describe.records(num_records)}, {len(regions)} region skipped")
    # No record is lost if the bit is in a header, because the payload has its own checksum.
    lost = sum(region.num_records or 0 for region in regions)
    right = len(regions) == 1 and lost <= 1 and num_records == len(ps.open(good)) - lost
    tour.check("all other records are delivered", right)
    tour.say("They can also be copied to a new file:")
    tour.command("penstock repair damaged.tfrecord --into repaired.tfrecord --overwrite")
    tour.command("penstock verify repaired.tfrecord")


def _compressed(tour: Narrator, table: pa.Table) -> None:
    tour.chapter("Random access in compressed files")
    tour.say(
        """penstock writes GZIP in members of whole records. Other readers see one ordinary GZIP
        file; penstock can start to read at any member."""
    )

    def write(table: pa.Table) -> ps.Summary:
        return ps.write(table, "train.tfrecord.gz", overwrite=True)

    made, taken = tour.run(write, table)
    tour.figure("write, gzip", taken, made.num_records)
    _take(tour, "train.tfrecord.gz", table, "random access in gzip")
    with gzip.open("train.tfrecord.gz") as file:
        plain = file.read()
    whole = ps.info("train.tfrecord.gz").shards[0].plain_bytes
    tour.check("Python's gzip module reads all of it", len(plain) == whole)


def _convert(tour: Narrator) -> None:
    tour.chapter("Convert")
    tour.say("To Parquet, and back:")
    tour.command("penstock convert 'train-*.tfrecord' train.parquet --overwrite")
    tour.command("penstock convert train.parquet again.tfrecord --overwrite")
    before = pa.Table.from_batches(ps.open("train-*.tfrecord").scan())
    again = pa.Table.from_batches(ps.open("again.tfrecord").scan())
    tour.check("every value came back", _is_same(again, before))


def _end(tour: Narrator) -> None:
    tour.chapter("What was measured")
    headings = ("time", "records", "bytes")
    shown = tables.table("", *headings, right=headings)
    for figure in tour.figures:
        shown.add_row(figure.what, *figure.cells())
    tour.printed(shown)
    failed = [what for what, holds in tour.checks.items() if not holds]
    verdict = f"All {len(tour.checks)} comparisons held."
    if failed:
        verdict = f"Did not hold: {'; '.join(failed)}."
    tour.say(
        f"""{verdict} The files stay in {os.getcwd()}. `penstock --help` lists the commands,
        `help(penstock.open)` the ways to read."""
    )


def _is_same(found: pa.RecordBatch | pa.Table, expected: pa.Table) -> bool:
    """Whether records have the same values. The order of columns may differ, and so may types that TFRecord lacks:
    text is read back as bytes, and a fixed list as a list."""
    if len(found) != len(expected) or set(found.schema.names) != set(expected.column_names):
        return False
    found = pa.table(found)
    return all(
        found[name].cast(column.type).equals(column)
        for name, column in zip(expected.column_names, expected.columns, strict=True)
    )
