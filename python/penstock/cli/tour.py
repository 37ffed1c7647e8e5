"""The chapters of `penstock demo`, in their order."""

from __future__ import annotations

import gzip
import importlib.util
import os
import platform
import shutil
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import penstock as ps
from penstock import describe
from penstock.cli import demo_data, output, tour_tensorflow
from penstock.cli.narrate import Figure, Narrator, fastest, rate, seconds

TIMES = 3
"""Short runs are repeated so often, and the fastest counts."""
TAKEN = 256


class Tour:
    """One run of the demo, in the current folder. Keeps what was measured and checked."""

    def __init__(self, console: Console, num_records: int, *, with_tensorflow: bool) -> None:
        self.figures: list[Figure] = []
        self.checks: dict[str, bool] = {}
        self._teller = Narrator(console)
        self._num_records = num_records
        self._with_tensorflow = with_tensorflow
        self._table = demo_data.examples(num_records)

    def run(self) -> None:
        """All chapters."""
        self._welcome()
        self._write()
        self._look()
        self._verify()
        self._at_random()
        self._scan()
        self._others()
        self._damage()
        self._compressed()
        self._convert()
        if self._with_tensorflow:
            self._tensorflow()
        self._end()

    def machine(self) -> dict[str, Any]:
        """Where the figures come from."""
        return {
            "cores": len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            "processor": platform.machine(),
            "system": platform.system(),
            "python": platform.python_version(),
            "pyarrow": pa.__version__,
            "numpy": np.__version__,
        }

    # -- keeping account --------------------------------------------------------------------------

    def _measured(
        self, what: str, taken: float, num_records: int | None = None, num_bytes: int | None = None
    ) -> Figure:
        figure = Figure(what, taken, num_records, num_bytes)
        self.figures.append(figure)
        self._teller.figure(f"{what}: {figure}")
        return figure

    def _checked(self, what: str, holds: bool) -> None:
        """Note the outcome of a comparison; what does not hold is told as loudly as what does."""
        self.checks[what] = holds
        self._teller.figure(f"{what}: {'yes' if holds else 'NO - this is a bug, please report it'}")

    # -- chapters ---------------------------------------------------------------------------------

    def _welcome(self) -> None:
        machine = self.machine()
        self._teller.say(
            f"""penstock opens training data as it lies. This tour makes a small data set in
            {os.getcwd()} and shows what can be done with it. Every figure is measured in this run, on
            {machine["cores"]} cores ({machine["system"]} {machine["processor"]}, Python
            {machine["python"]}); the files have just been written, so
            reading them seldom waits for a disk, and of short runs the fastest of {TIMES} counts."""
        )

    def _write(self) -> None:
        tell = self._teller
        tell.chapter("Write")
        count = describe.count(self._num_records)
        tell.say(
            f"""{count} records, each a tf.train.Example with five features, into four TFRecord shards.
            Shards appear under their names when all of them are whole and on disk."""
        )

        def write(table: pa.Table) -> ps.Summary:
            return ps.write(table, "train.tfrecord", num_shards=4, overwrite=True)

        tell.code(write)
        made, taken = fastest(lambda: write(self._table), 1)
        tell.printed(", ".join(made.paths[:2]) + f", … {describe.size(made.num_bytes)}")
        self._measured("write, synced to disk", taken, made.num_records, made.num_bytes)
        tell.say("And a few hundred pictures, as bytes.")
        pictures = demo_data.pictures(300)

        def write_pictures(table: pa.Table) -> ps.Summary:
            return ps.write(table, "pictures.tfrecord", overwrite=True)

        tell.code(write_pictures)
        write_pictures(pictures)

    def _look(self) -> None:
        tell = self._teller
        tell.chapter("Look")
        tell.say("What is there? Format, compression and fields are found from the bytes.")
        tell.command("penstock info 'train-*.tfrecord'")
        tell.command("penstock schema 'train-*.tfrecord'")
        tell.command("penstock head -n 4 'train-*.tfrecord'")
        tell.say("Bytes are shown as what they are.")
        tell.command("penstock head -n 4 pictures.tfrecord")
        tell.command("penstock stats --columns label,vector,tokens 'train-*.tfrecord'")

    def _verify(self) -> None:
        tell = self._teller
        tell.chapter("Verify")
        tell.say("Every record carries two checksums. All of them:")
        tell.command("penstock verify 'train-*.tfrecord'")

        def verify() -> ps.Report:
            return ps.verify("train-*.tfrecord")

        report, taken = fastest(verify, TIMES)
        self._measured("ps.verify, within Python", taken, report.num_records, report.num_bytes)

    def _at_random(self) -> None:
        tell = self._teller
        tell.chapter("Any record, at once")
        tell.say(
            """TFRecord has no table of contents, so penstock makes one: from the heads of the records
            alone, without reading their payloads."""
        )

        def index() -> list[str]:
            return ps.index("train-*.tfrecord", force=True)

        tell.code(index)
        paths, taken = fastest(index, TIMES)
        num_bytes = sum(os.path.getsize(path) for path in paths)
        each = num_bytes / self._num_records
        tell.printed(
            f"{len(paths)} sidecars, {describe.size(num_bytes)}, {each:.1f} bytes a record"
        )
        self._measured("index", taken, self._num_records)

        ds = ps.open("train-*.tfrecord")
        tell.say(f"Now {TAKEN} records at random, checksums verified, decoded to columns:")
        tell.code(_take)
        self._take_and_compare(ds, self._table, "take at random")

    def _take_and_compare(self, ds: ps.Dataset, table: pa.Table, what: str) -> None:
        """Measure taking records at random, and compare them with what was written."""
        rng = np.random.default_rng(22)
        draws = [rng.integers(0, len(ds), TAKEN) for _ in range(20)]
        _, taken = fastest(lambda: [_take(ds, numbers) for numbers in draws], TIMES)
        self._measured(what, taken, TAKEN * len(draws))
        numbers = draws[0]
        expected = table.take(pa.array(numbers))
        self._checked(f"{what} gives what was written", _same(_take(ds, numbers), expected))

    def _scan(self) -> None:
        tell = self._teller
        tell.chapter("Read everything")
        num_bytes = sum(os.path.getsize(path) for path in ps.open("train-*.tfrecord").paths)

        def scan_raw() -> int:
            ds = ps.open("train-*.tfrecord", raw=True)
            return sum(batch.num_rows for batch in ds.scan())

        def scan_columns() -> int:
            ds = ps.open("train-*.tfrecord")
            return sum(batch.num_rows for batch in ds.scan(batch_records=1024))

        def scan_one() -> float:
            ds = ps.open("train-*.tfrecord", columns=["label"])
            labels = [batch["label"].to_numpy() for batch in ds.scan()]
            return float(np.concatenate(labels).mean())

        tell.say("Payloads as they lie, in Arrow batches; both checksums of every record verified:")
        tell.code(scan_raw)
        seen, taken = fastest(scan_raw, TIMES)
        self._measured("scan, raw", taken, seen, num_bytes)
        tell.say("The same, decoded to columns, 1024 records a batch:")
        tell.code(scan_columns)
        seen, taken = fastest(scan_columns, TIMES)
        self._measured("scan, all columns", taken, seen, num_bytes)
        tell.say("One column, as NumPy; what was not asked for is skipped on the wire:")
        tell.code(scan_one)
        mean, taken = fastest(scan_one, TIMES)
        tell.printed(f"mean label: {mean:.4f}")
        self._measured("scan, one column to NumPy", taken, self._num_records, num_bytes)
        expected = float(self._table["label"].to_numpy().mean())
        self._checked("the mean is that of what was written", mean == expected)

    def _others(self) -> None:
        tell = self._teller
        tell.chapter("In one line, elsewhere")

        def in_polars(ds: ps.Dataset) -> Any:
            import polars as pl

            return pl.DataFrame(ds).group_by("label").len().sort("label").head(3)

        def in_duckdb(ds: ps.Dataset) -> Any:  # noqa: ARG001  duckdb finds it by its name
            import duckdb

            return duckdb.sql(
                "select label, count(*) from ds group by label order by label limit 3"
            )

        def in_pandas(ds: ps.Dataset) -> Any:
            import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

            return pd.DataFrame.from_arrow(ds)["label"].value_counts().sort_index().head(3)

        tell.say("A Dataset is an Arrow stream, which other libraries read.")
        ds = ps.open("train-*.tfrecord", columns=["label"])
        missing: list[str] = []
        for name, line in (("polars", in_polars), ("duckdb", in_duckdb), ("pandas", in_pandas)):
            if importlib.util.find_spec(name) is None:
                missing.append(name)
                continue
            tell.code(line)
            try:
                tell.printed(str(line(ds)))
            except (AttributeError, ImportError) as error:
                tell.printed(f"this {name} cannot: {error}")  # an older one, without Arrow streams
        if missing:
            tell.say(f"Not installed here, so not shown: {', '.join(missing)}.")

    def _damage(self) -> None:
        tell = self._teller
        tell.chapter("Damage")
        good = ps.open("train-*.tfrecord").paths[0]
        shutil.copyfile(good, "damaged.tfrecord")
        size = os.path.getsize("damaged.tfrecord")
        place = size // 2
        with open("damaged.tfrecord", "r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
        tell.say(f"One bit of byte {place} of a copy of the first shard is flipped. What then?")
        tell.command("penstock stats damaged.tfrecord")
        status = tell.command("penstock verify damaged.tfrecord")
        self._checked("verify ends with exit status 1", status == 1)
        tell.say("The rest can be read all the same, and what was passed over is told:")

        def skip() -> tuple[int, list[ps.SkippedRegion]]:
            ds = ps.open("damaged.tfrecord", damage="skip")
            num_records = sum(batch.num_rows for batch in ds.scan())
            return num_records, ds.damage

        tell.code(skip)
        num_records, regions = skip()
        tell.printed(f"{describe.count(num_records)} records, {len(regions)} region passed over")
        whole = len(ps.open(good))
        # None is lost where the bit is of a head: the payload has a checksum of its own.
        lost = sum(region.num_records or 0 for region in regions)
        right = len(regions) == 1 and lost <= 1 and num_records == whole - lost
        self._checked("all other records are delivered", right)
        tell.say("Or copied into a file that is whole:")
        tell.command("penstock repair damaged.tfrecord --into repaired.tfrecord --overwrite")
        tell.command("penstock verify repaired.tfrecord")

    def _compressed(self) -> None:
        tell = self._teller
        tell.chapter("Compressed, and still any record at once")
        tell.say(
            """penstock writes GZIP in members of whole records. Other readers see one ordinary GZIP file;
            penstock starts reading at any member."""
        )
        quarter = self._table.slice(0, self._num_records // 4)

        def write(table: pa.Table) -> ps.Summary:
            return ps.write(table, "train.tfrecord.gz", overwrite=True)

        tell.code(write)
        made, taken = fastest(lambda: write(quarter), 1)
        ds = ps.open("train.tfrecord.gz")
        self._measured("write, gzip", taken, made.num_records)
        self._take_and_compare(ds, quarter, "take at random from gzip")
        with gzip.open("train.tfrecord.gz") as file:
            plain = file.read()
        whole = ps.info("train.tfrecord.gz").shards[0].plain_bytes
        self._checked("Python's gzip module reads all of it", len(plain) == whole)
        tell.say(
            """A file that somebody else compressed, in one piece, works too: the first pass notes places
            where inflating may start again."""
        )
        with gzip.open("others.tfrecord.gz", "wb", compresslevel=6) as file:
            file.write(plain)
        if os.path.exists(".others.tfrecord.gz.penstock"):
            os.unlink(".others.tfrecord.gz.penstock")  # of an earlier demo

        def index() -> list[str]:
            return ps.index("others.tfrecord.gz")

        tell.code(index)
        _, taken = fastest(index, 1)
        self._measured("index of one gzip member", taken, made.num_records)
        self._take_and_compare(
            ps.open("others.tfrecord.gz"), quarter, "take at random from one member"
        )

    def _convert(self) -> None:
        tell = self._teller
        tell.chapter("Convert")
        tell.say("To Parquet, and back:")
        tell.command("penstock convert 'train-*.tfrecord' train.parquet --overwrite")
        tell.command("penstock convert train.parquet again.tfrecord --overwrite")
        before = pa.Table.from_batches(ps.open("train-*.tfrecord").scan())
        again = pa.Table.from_batches(ps.open("again.tfrecord").scan())
        self._checked("every value came back", _same(again, before))

    def _tensorflow(self) -> None:
        tell = self._teller
        tell.chapter("Beside TensorFlow")
        if importlib.util.find_spec("tensorflow") is None:
            tell.say(
                """TensorFlow is not installed here, so nothing is compared with it. With it installed,
                this chapter reads the files back through TensorFlow, and measures both."""
            )
            return
        paths = list(ps.open("train-*.tfrecord").paths)
        outcome = tour_tensorflow.compare(tell, paths, "train.tfrecord.gz", self._num_records)
        for what, holds in outcome.checks.items():
            self._checked(what, holds)
        for what, taken in outcome.seconds.items():
            self._measured(what, taken, self._num_records)
        for what, (theirs, ours) in outcome.pairs.items():
            ratio = outcome.seconds[theirs] / outcome.seconds[ours]
            tell.figure(f"{what}: penstock {ratio:.1f} times as fast")

    def _end(self) -> None:
        tell = self._teller
        tell.chapter("What was measured")
        shown = output.table(
            "", "time", "records/s", "bytes/s", right=("time", "records/s", "bytes/s")
        )
        for figure in self.figures:
            shown.add_row(
                figure.what,
                seconds(figure.seconds),
                "" if figure.records_per_s is None else rate(figure.records_per_s),
                "" if figure.bytes_per_s is None else describe.size(figure.bytes_per_s),
            )
        tell.printed(shown)
        failed = [what for what, holds in self.checks.items() if not holds]
        verdict = (
            f"All {len(self.checks)} comparisons held."
            if not failed
            else f"Did not hold: {'; '.join(failed)}."
        )
        tell.say(
            f"""{verdict} The files are in {os.getcwd()}, to play with. `penstock --help` lists the
            commands, `help(penstock.open)` the ways to read."""
        )


def _take(ds: ps.Dataset, numbers: np.ndarray) -> pa.RecordBatch:
    return ds.take(numbers)


def _same(batch: pa.RecordBatch | pa.Table, expected: pa.Table) -> bool:
    """Whether records hold the same values, whatever the order of columns and the exact types:
    text reads back as bytes, and a fixed list as a list."""
    if batch.num_rows != expected.num_rows or set(batch.schema.names) != set(expected.column_names):
        return False
    for name in expected.column_names:
        have, want = batch.column(name), expected.column(name)
        if isinstance(have, pa.Array):
            have = pa.chunked_array([have])
        if not have.cast(want.type).equals(want):
            return False
    return True
