"""The files that penstock writes next to data, changed by somebody else: overlays, the note of an append, the
journals of interrupted jobs, the cache of `tf.data`. penstock must return correct data or raise an error that says
what is wrong."""

from __future__ import annotations

import functools
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as ps
from fuzz import seeds
from fuzz.lies import json_text, words
from fuzz.tfrecords import framed
from penstock.limits import Limits
from penstock.overlay.file import Overlay
from penstock.overlay.places import Place
from penstock.overlay.view import Changes
from penstock.storage import MemoryStorage
from penstock.storage import append_journal as journal
from penstock.storage.local import LocalStorage
from penstock.verbs.convert import journal as convert_journal
from penstock.verbs.fields import rewrite_journal
from penstock.verbs.fields.overlays import write_overlay

_PAYLOADS = [b"%d" % n for n in range(20)]
_DATA = b"".join(map(framed, _PAYLOADS))


# -- overlays -------------------------------------------------------------------------------------


def overlay(data: bytes, rng: random.Random) -> None:
    """An overlay alone, and sometimes through the data file that it belongs to."""
    found = Overlay("a.overlay", Place(MemoryStorage({"a.overlay": data})), Limits())
    assert found.num_records < 1 << 40 or len(data) > 1 << 20
    first = rng.randrange(max(found.num_records, 1))
    found.between(first, min(first + 100, found.num_records), found.schema.names).validate(
        full=True
    )
    found.take(np.array([first, 0]), found.schema.names[:1])
    if rng.random() < 0.02:
        Path(_overlaid()[0]).write_bytes(data)
        for batch in ps.open(_overlaid()[1], index="never").scan(threads=1):
            batch.validate(full=True)


@functools.cache
def _overlaid() -> tuple[str, str]:
    """The overlay of a small file, and that file."""
    path = os.path.join(seeds.folder(), "overlaid.tfrecord")
    ps.write({"n": range(30)}, path, index=False, overwrite=True)
    values = {
        "x": list(range(30)),
        "t": [f"t{n}" for n in range(30)],
        "l": [[n] * (n % 3) for n in range(30)],
    }
    batch = pa.record_batch(values)
    write_overlay(ps.open(path), "more", batch.schema, lambda _: [batch], overwrite=True)
    return Place(LocalStorage()).path_of(path, "more"), path


@functools.cache
def overlays() -> list[bytes]:
    """The overlay of a small file, and one that also drops and renames fields."""
    changing = os.path.join(seeds.folder(), "changed.tfrecord")
    ps.write({"n": range(30), "m": range(30)}, changing, index=False, overwrite=True)
    batch = pa.record_batch({"x": range(30)})
    changes = Changes(("n",), {"m": "k"})
    write_overlay(
        ps.open(changing), "more", batch.schema, lambda _: [batch], overwrite=True, changes=changes
    )
    kept_at = (_overlaid()[0], Place(LocalStorage()).path_of(changing, "more"))
    return [Path(path).read_bytes() for path in kept_at]


# -- notes and journals ---------------------------------------------------------------------------


def note(data: bytes, rng: random.Random) -> None:
    """The note of an append next to a file: the records that are read must be the first records of the file."""
    path = os.path.join(seeds.folder(), "noted.tfrecord")
    if not os.path.exists(path):
        Path(path).write_bytes(_DATA)
    Path(journal.path_for(path)).write_bytes(data)
    known = journal.load(path)
    size = journal.visible_size(path)
    assert size is None or (known is not None and size == known.old_size)
    if rng.random() < 0.05:
        dataset = ps.open(path, raw=True, index="never")
        found = [row for batch in dataset.scan(threads=1) for row in batch.column(0).to_pylist()]
        assert found == _PAYLOADS[: len(found)]


@functools.cache
def notes() -> list[bytes]:
    """Notes about a file that has grown, and about one whose append was interrupted."""
    read = MemoryStorage({"a": _DATA}).source("a").read
    found: list[bytes] = []
    for old_size, new_size in ((len(_DATA) - 34, len(_DATA)), (34, len(_DATA) + 500)):
        head = _DATA[old_size:][: journal.EDGE_BYTES].ljust(
            min(journal.EDGE_BYTES, new_size - old_size), b"\0"
        )
        tail = journal.checksum(read, old_size, len(_DATA))
        border = journal.border_of(read, old_size)
        found.append(journal.Journal(old_size, new_size, border, head.hex(), tail).to_bytes())
    return found


@functools.cache
def _job() -> tuple[list[str], rewrite_journal.Journal, str]:
    """Two files, a job on them, and the path of its journal."""
    folder = os.path.join(seeds.folder(), "job")
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, f"{n}.tfrecord") for n in range(2)]
    for path in paths:
        Path(path).write_bytes(_DATA)
    made = rewrite_journal.Journal(paths, paths, {"job": 1}, in_place=True)
    made.load()
    (name,) = (name for name in os.listdir(folder) if name.endswith(".json"))
    return paths, made, os.path.join(folder, name)


def rewritten(data: bytes, rng: random.Random) -> None:
    """The journal of a change of fields: the job continues, starts again or is refused, and no file is lost."""
    paths, _, place = _job()
    Path(place).write_bytes(data)
    again = rewrite_journal.Journal(paths, paths, {"job": rng.randrange(1, 3)}, in_place=True)
    try:
        again.written()
        again.load()
        again.is_of_this_job()
        assert set(again.done) <= {0, 1}
    finally:
        assert all(Path(path).read_bytes() == _DATA for path in paths)


@functools.cache
def rewrite_journals() -> list[bytes]:
    """Journals of a job that was just started, of one that has finished a file, and of one that has done nothing."""
    paths, made, place = _job()
    found = [Path(place).read_bytes()]
    facts = {
        "num_records": 20,
        "num_bytes": len(_DATA),
        "contents": rewrite_journal.bytes_of(paths[0]),
    }
    made.begin(0, paths[0], facts)
    found.append(Path(place).read_bytes())
    made.finish(0)
    made.begin(1, paths[1], {**facts, "contents": "records 20 00000000 00000000"})
    return [*found, Path(place).read_bytes()]


def converted(data: bytes, rng: random.Random) -> None:
    """The journal of a conversion: it is believed only about parts that exist."""
    made, place = _conversion()
    Path(place).write_bytes(data)
    made.load()
    assert set(made.done) <= {0, 1}


@functools.cache
def _conversion() -> tuple[convert_journal.Journal, str]:
    folder = os.path.join(seeds.folder(), "conversion")
    os.makedirs(folder, exist_ok=True)
    made = convert_journal.Journal("a.tfrecord", folder, {"job": 1}, None, LocalStorage())
    made.load()
    for number in range(2):
        Path(made.part_path(number)).write_bytes(_DATA)
        made.finish(number, len(_DATA), ("a note",))
    (name,) = (name for name in os.listdir(folder) if name.endswith(".json"))
    return made, os.path.join(folder, name)


@functools.cache
def convert_journals() -> list[bytes]:
    """A conversion with two finished parts, and one that is giving parts their names."""
    told = Path(_conversion()[1]).read_bytes()
    facts: dict[str, Any] = {**json.loads(told), "files": ["a.tfrecord", "b.tfrecord"]}
    return [told, json.dumps(facts).encode()]


# -- the cache of tf.data -------------------------------------------------------------------------

_MARK = b"\0--data--\0"


def cached(data: bytes, rng: random.Random) -> None:
    """The two files of a cache, index before data: the result is elements of its types, or an error."""
    from penstock.tf import data as tf_data
    from penstock.tf.errors import OpError

    index, _, values = data.partition(_MARK)
    path = os.path.join(seeds.folder(), "cache")
    Path(f"{path}.index").write_bytes(index)
    Path(f"{path}.data-00000-of-00001").write_bytes(values)
    upstream = tf_data.Dataset.range(3)
    try:
        for number, _ in enumerate(upstream.cache(path)):
            if number > 100:
                return
    except OpError as error:
        raise ps.FormatError(str(error)) from None


@functools.cache
def caches() -> list[bytes]:
    """Caches of numbers, and of structures with text."""
    from penstock.tf import data as tf_data

    made: list[bytes] = []
    structure = {"n": [1, 2], "t": (["a", "bc"], [[1.5], [2.5]])}
    for number, dataset in enumerate(
        (tf_data.Dataset.range(3), tf_data.Dataset.from_tensor_slices(structure))
    ):
        path = os.path.join(seeds.folder(), f"cache{number}")
        for _ in dataset.cache(path):
            pass
        parts = [Path(f"{path}.{end}").read_bytes() for end in ("index", "data-00000-of-00001")]
        made.append(_MARK.join(parts))
    return made


def cache_lie(rng: random.Random, data: bytes) -> bytes:
    """A different value in the index, or a different number in the data."""
    index, _, values = data.partition(_MARK)
    if rng.random() < 0.6:
        index = json_text(rng, index)
    else:
        values = words(rng, values, 0, len(values), "<Q")
    return index + _MARK + values
