"""A class name keeps the same number for the whole life of a loader, whatever the format, the batches, the threads,
the ranks, the epoch, a cache or a resume."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from held import WRITABLE

import penstock as ps
from penstock.contract.format import Format
from places import Place

LABEL = pa.dictionary(pa.int32(), pa.string())
NUMBERED = {"beton", "recordio"}
"""Formats in which labels are already numbers."""
ONE_DICTIONARY = {"npz", "hdf5", "imagefolder"}
NUM_RECORDS = 60
ENDINGS = {"webdataset": "tar", "hdf5": "h5", "imagefolder": ""}


def names_of(num_records: int) -> list[str]:
    """Names in runs, so that batches begin with different names."""
    rng = random.Random(4)
    return sorted(
        (rng.choice("abcdefgh") * 2 for _ in range(num_records)),
        key=lambda name: (rng.random(), name),
    )


def batches_of(names: list[str], images: Any) -> Iterator[pa.RecordBatch]:
    """Batches of ten records, with different dictionaries."""
    for first in range(0, len(names), 10):
        columns: dict[str, Any] = {"label": pa.array(names[first : first + 10]).dictionary_encode()}
        if images is not None:
            columns["image"] = images[: len(columns["label"])]
        yield pa.record_batch(columns)


def written(fmt: Format, folder: Place) -> tuple[ps.Dataset, list[str]]:
    """A dataset of two shards with class labels, and the name of each record."""
    name = fmt.info.name
    halves = [names_of(NUM_RECORDS), names_of(NUM_RECORDS)[10:]]
    images = None
    # In this format, records are in the order of their classes, and not every shard has every
    # class.
    if fmt.info.is_folder:
        halves = [sorted(halves[0]), sorted(one for one in halves[1] if one != "aa")]
        images = ps.encode_images(np.zeros((NUM_RECORDS, 2, 2, 3), np.uint8), "png")
    paths = []
    for part, names in enumerate(halves):
        path = str(folder / f"{name}-{part}.{ENDINGS.get(name, name)}").rstrip(".")
        batches = list(batches_of(names, images))
        if name in ONE_DICTIONARY:
            batches = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
        ps.write(batches, path, format=name)
        paths.append(path)
    ds = ps.open(paths)
    if not pa.types.is_dictionary(ds.schema.field("label").type):
        ds = ps.open(paths, schema=pa.schema([("label", LABEL)]))
    return ds, halves[0] + halves[1]


def labelled(fmt: Format) -> bool:
    """Whether files of a format can hold columns of text."""
    return fmt.info.name not in NUMBERED and fmt.info.name != "npy"


@pytest.mark.parametrize("fmt", [f for f in WRITABLE if labelled(f)], ids=lambda f: f.info.name)
def test_one_name_has_one_number(fmt: Format, place: Place, tmp_path: Path) -> None:
    ds, names = written(fmt, place)
    draw = random.Random(7)
    numbers: dict[str, int] | None = None
    for cache in (None, "memory", str(tmp_path / "copies")):
        for world_size in (1, 2):
            state = None
            for rank in range(world_size):
                loader = ps.Loader(
                    ds,
                    draw.randint(1, 17),
                    order=draw.choice([ps.Sequential(), ps.Shuffled(1), ps.Blocked(2)]),
                    columns=["label"],
                    record_numbers="n",
                    rank=rank,
                    world_size=world_size,
                    threads=draw.choice([0, 1, 3]),
                    cache=cache,
                )
                listed = {name: n for n, name in enumerate(loader.class_names["label"])}
                numbers = listed if numbers is None else numbers
                assert listed == numbers and set(names) <= set(listed)
                for _ in range(2):
                    for batch in loader:
                        assert batch["label"].dtype == np.int64
                        wanted = [listed[names[n]] for n in batch["n"]]
                        assert batch["label"].tolist() == wanted
                batches = iter(loader)
                next(batches)
                state = loader.state_dict()
                rest = [batch["label"].tolist() for batch in batches]
                loader.load_state_dict(state)
                assert [batch["label"].tolist() for batch in loader] == rest


def test_every_format_is_tested() -> None:
    assert {f.info.name for f in WRITABLE if not labelled(f)} == NUMBERED | {"npy"}
