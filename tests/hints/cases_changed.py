"""Hints of files that change while they are open, and of overlays of damaged files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from steps import Case, Cases, apart, cli, folder_of_images, png, rows

import penstock as ps
from penstock.formats.parquet.format import ParquetReader

# -- files that change ----------------------------------------------------------------------------


def changed(
    words: str, path: str, use: Callable[[ps.Dataset], Any], change: Callable[[], Any]
) -> Case:
    """A dataset, one of whose files is changed while it is open."""
    dataset = ps.open(path)
    use(dataset)

    def fails() -> None:
        change()
        try:
            use(dataset)
        except ps.ChangedError as error:
            assert words in error.message
            raise

    def again() -> None:
        assert [record["a"] for record in rows(path)] == [8, 9]

    return Case(fails, again)


def written(path: str, *values: int) -> None:
    """Write into the file itself, and change its time."""
    Path("new").mkdir(exist_ok=True)
    ps.write({"a": list(values)}, f"new/{path}", overwrite=True, index=False)
    Path(path).write_bytes(Path("new", path).read_bytes())
    os.utime(path, (values[0], values[0]))


def changed_while_read() -> Case:
    written("a.parquet", 1, 2)
    return changed(
        "changed while it was open", "a.parquet", list, lambda: written("a.parquet", 8, 9)
    )


def changed_before_an_epoch() -> Case:
    written("a.arrow", 1, 2)

    def epoch(dataset: ps.Dataset) -> None:
        list(ps.Loader(dataset, 2))

    return changed("changed or replaced", "a.arrow", epoch, lambda: written("a.arrow", 8, 9))


def changed_frames() -> Case:
    written("a.tfrecord", *range(3000))

    def skipping(_: ps.Dataset) -> None:
        list(ps.open("a.tfrecord", damage="skip"))

    return changed("rewritten", "a.tfrecord", list, lambda: written("a.tfrecord", 8, 9))


def changed_image() -> Case:
    folder_of_images(csv="file_name,a\n0.png,8\n1.png,9\n")

    def change() -> None:
        Path("d/1.png").write_bytes(png(200) + b"more")

    return changed("while the folder was open", "d", list, change)


MANY = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import penstock as ps

for n in range(100):
    ps.write({"a": [n]}, f"s-{n:02}.parquet", index=False, overwrite=True)
dataset = ps.open("s-*.parquet")
assert len(dataset) == 100

def change():
    ps.write({"a": [500]}, "s-00.parquet", index=False, overwrite=True)

def fails():
    list(dataset)
    change()
    try:
        dataset.take([0])
    except ps.ChangedError as error:
        assert "while the dataset was open" in error.message
        raise

def advised():
    change()
    assert [record["a"] for record in ps.open("s-*.parquet")] == [500, *range(1, 100)]
"""


def changed_while_closed() -> Case:
    return apart(MANY)


# -- overlays of damaged files -----------------------------------------------------------------


def damaged_with_fields() -> Case:
    ps.write({"a": range(5)}, "a.tfrecord", index=False)
    ps.add_fields("a.tfrecord", {"b": range(5)})
    data = bytearray(Path("a.tfrecord").read_bytes())
    second = int.from_bytes(data[:8], "little") + 16
    data[second + 3] ^= 0xFF  # damage the length
    Path("a.tfrecord").write_bytes(data)
    for path in Path().glob(".a.tfrecord.penstock*"):
        if "fields" not in path.name:
            path.unlink()
    shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)
    left = [{"a": n} for n in range(5)]

    def advised() -> None:
        assert rows("a.tfrecord", damage="skip", overlays=False) == left
        cli("repair a.tfrecord --into b.tfrecord --no-overlays")
        assert rows("b.tfrecord") == left

    return Case(lambda: rows("a.tfrecord", damage="skip"), advised)


def records_left_out() -> Case:
    """A reader from another package leaves records out and does not report which."""
    ps.write({"a": [1, 2]}, "a.parquet")
    ps.add_fields("a.parquet", {"b": [10, 20]})

    def fails() -> None:
        with pytest.MonkeyPatch.context() as patch:
            decode = ParquetReader.decode
            patch.setattr(ParquetReader, "decode", lambda *given: decode(*given).slice(1))
            rows("a.parquet")

    def advised() -> None:
        assert rows("a.parquet", overlays=False) == [{"a": 1}, {"a": 2}]

    return Case(fails, advised)


def changed_since_tasks_were_made() -> Case:
    ps.write({"a": [1]}, "a.parquet")
    (task,) = ps.open("a.parquet").tasks()
    ps.write({"a": [1, 2]}, "a.parquet", overwrite=True)

    def advised() -> None:
        (task,) = ps.open("a.parquet").tasks()
        assert [batch.num_rows for batch in task.batches()] == [2]

    return Case(lambda: list(task.batches()), advised)


def state_in_a_checkpoint() -> Case:
    ps.write({"id": range(4)}, "a.tfrecord")

    def made() -> ps.Loader:
        return ps.Loader(ps.open("a.tfrecord"), 1)

    loader = made()
    next(iter(loader))
    checkpoint = {"step": 1, "loader": loader.state_dict()}

    def advised() -> None:
        again = made()
        again.load_state_dict(checkpoint["loader"])
        assert [batch["id"].tolist() for batch in again] == [[1], [2], [3]]

    return Case(lambda: made().load_state_dict(checkpoint), advised)


CASES: Cases = {
    "'if it is part of a checkpoint, pass that part'": state_in_a_checkpoint,
    "'open the data again, and make new tasks'": changed_since_tasks_were_made,
    "'open the data again'": (
        changed_while_read,
        changed_before_an_epoch,
        changed_frames,
        changed_image,
        changed_while_closed,
    ),
    "'open(..., overlays=False), or penstock repair --no-overlays'": damaged_with_fields,
    "'open(..., overlays=False)'": records_left_out,
}
