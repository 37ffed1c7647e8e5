"""penstock's jobs on the fields of existing records; listed in `penstock.JOBS`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Data
from benchmarks.job import Job, Outcome

NEW = "added"


def target(name: str) -> Path:
    """The path of a rewritten file."""
    return Path(os.environ["BENCHMARKS_TMPFS"]) / f"fields-{name}.tfrecord"


def remove(path: Path) -> None:
    """Remove a file and the files that penstock stores next to it."""
    for found in path.parent.glob(f"{path.name}*"):
        found.unlink()


def rewritten(verb: str, threads: int) -> Callable[[Data], Job]:
    """Every record with one field added, dropped or replaced, in a new file with its index."""

    def make(data: Data) -> Job:
        import penstock as ps

        path = target(f"penstock-{verb}-{threads}")
        values = np.arange(data.num_records, dtype=np.int64)

        def work(check: bool) -> Outcome:
            source, how = str(data.plain), {"into": path, "threads": threads}
            if verb == "add":
                ps.add_fields(source, {NEW: values}, **how)
            elif verb == "replace":
                ps.replace_fields(source, {"label": values}, **how)
            else:
                ps.drop_fields(source, "label", **how)
            if check:
                _check(path, verb, values)
            return Outcome(data.num_records)

        return Job(work, before=lambda: remove(path), after=lambda: remove(path))

    return make


def _check(path: Path, verb: str, values: np.ndarray[Any, Any]) -> None:
    import penstock as ps

    ds = ps.open(path)
    if verb == "drop":
        assert "label" not in ds.schema.names and len(ds) == len(values)
        return
    name = NEW if verb == "add" else "label"
    found = np.concatenate([b.column(0).to_numpy() for b in ds.scan(columns=[name])])
    assert (found == values).all()


def copied(data: Data, name: str) -> Path:
    """A copy of the data, with its index, for overlays."""
    import penstock as ps

    path = data.copy(f"{name}.tfrecord")
    if not path.exists():
        shutil.copyfile(data.plain, path)
    len(ps.open(path))
    return path


def overlay(data: Data) -> Job:
    """The same field stored next to the shard."""
    import penstock as ps

    path = copied(data, "overlaid-large")
    values = np.arange(data.num_records, dtype=np.int64)

    def work(check: bool) -> Outcome:
        ps.add_fields(path, {NEW: values})
        if check:
            found = ps.open(path, columns=[NEW]).take([data.num_records - 1])
            assert found.column(0)[0].as_py() == data.num_records - 1
        return Outcome(data.num_records)

    def remove_overlay() -> None:
        if NEW in ps.open(path).schema.names:
            ps.remove_overlay(path, NEW)

    return Job(work, before=remove_overlay, after=remove_overlay)


def scan(*, is_overlay: bool) -> Callable[[Data], Job]:
    """All columns, one of which comes from an overlay or was spliced in."""

    def make(data: Data) -> Job:
        import penstock as ps

        values = np.arange(data.num_records, dtype=np.int64)
        if is_overlay:
            path = copied(data, "overlaid-small")
            if NEW not in ps.open(path).schema.names:
                ps.add_fields(path, {NEW: values})
        else:
            path = data.copy("spliced-small.tfrecord")
            ps.add_fields(data.plain, {NEW: values}, into=path, overwrite=True)

        def work(check: bool) -> Outcome:
            count = total = 0
            for batch in ps.open(path).scan(threads=2):
                count += batch.num_rows
                if check:
                    total += int(batch.column(batch.schema.get_field_index(NEW)).to_numpy().sum())
            if check:
                assert total == int(values.sum())
            return Outcome(count)

        return Job(work)

    return make


JOBS = {
    "fields-add-small": {f"{n} thread{'s' * (n > 1)}": rewritten("add", n) for n in (1, 2)},
    "fields-add-large": {f"{n} thread{'s' * (n > 1)}": rewritten("add", n) for n in (1, 2)},
    "fields-drop": {"2 threads": rewritten("drop", 2)},
    "fields-replace": {"2 threads": rewritten("replace", 2)},
    "fields-overlay": {"overlay": overlay, "rewrite, 2 threads": rewritten("add", 2)},
    "fields-scan": {"overlay": scan(is_overlay=True), "spliced": scan(is_overlay=False)},
}
