"""A malformed object gives the error that the same file gives on this machine, and the error names its address."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import hostile_files
import penstock as ps
from reading import shared_path
from remote.servers.nginx import Nginx
from remote.servers.seaweed import Seaweed

FORMATS = (
    "tfrecord", "webdataset", "ffcv", "recordio", "npy", "hdf5", "parquet", "arrow", "msgpack", "mds",
    "array_record", "riegeli-neighbour",
)  # fmt: skip
STEP = 12
"""The normal run reads every so many-th file."""


def files() -> list[Path]:
    corpus = shared_path("corpus")
    found = [one for name in FORMATS for one in sorted((corpus / name).rglob("*")) if one.is_file()]
    return [one for one in found if one.suffix not in (".json", ".md")]


def values(column: Any) -> Any:
    try:
        return column.to_pylist()
    except ValueError:  # a struct with two fields of one name
        return column.combine_chunks().to_string(window=1000)


def outcome(path: str | Path, **options: Any) -> tuple[str, Any]:
    """What reading returns or raises, without the place of the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ds = ps.open(path, index="never", **options)
            table = ds.to_table()
            columns = zip(table.schema.names, table.columns, strict=True)
            return "read", (len(ds), [(n, values(c)) for n, c in columns if n != "__url__"])
    except ps.PenstockError as error:
        place = str(error.file)
        assert place == str(path), f"{error!r} names {place}"
        message = str(error).replace(str(path), "FILE").replace(Path(path).name, "FILE")
        return type(error).__name__, (message, error.record, error.byte)
    except FileNotFoundError as error:
        return type(error).__name__, None


def same(one: tuple[str, Any], other: tuple[str, Any]) -> bool:
    return one[0] == other[0] and repr(one[1]) == repr(other[1])


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(n, marks=pytest.mark.stress) for n in range(1, STEP))]
)
def test_files_of_others_give_the_same_in_a_store(part: int, seaweed: Seaweed, prefix: str) -> None:
    different: list[str] = []
    for number, file in enumerate(files()[part::STEP]):
        here = outcome(file)
        key = f"{prefix}/{number}/{file.name}"
        seaweed.client.put(key, file.read_bytes())
        there = outcome(f"s3://{key}", storage_options=seaweed.options())
        if not same(here, there):
            different.append(f"{file}:\n  here {str(here)[:300]}\n  there {str(there)[:300]}")
    assert not different, "\n".join(different)


def test_files_of_others_give_the_same_on_a_web_server(nginx: Nginx) -> None:
    different: list[str] = []
    for file in files()[5 :: 3 * STEP]:
        shutil.copy(file, nginx.files)
        there = outcome(
            f"{nginx.endpoint}/strong/{quote(file.name)}", storage_options={"allow_http": True}
        )
        here = outcome(file)
        (nginx.files / file.name).unlink()
        if not (here[0] == there[0] and (here[0] != "read" or same(here, there))):
            different.append(f"{file}:\n  here {str(here)[:300]}\n  there {str(there)[:300]}")
    assert not different, "\n".join(different)


ALONE = [
    name
    for name in hostile_files.HOSTILE
    if name.startswith(("npy", "npz", "msgpack", "mds_pickle", "arrow", "parquet", "tar", "hdf5"))
]


@pytest.mark.parametrize("name", ALONE)
def test_a_hostile_object_opens_and_runs_nothing(
    name: str, tmp_path: Path, seaweed: Seaweed, prefix: str
) -> None:
    place = hostile_files.Place(tmp_path)
    file = Path(hostile_files.HOSTILE[name](place))
    key = f"{prefix}/{file.name}"
    seaweed.client.put(key, file.read_bytes())
    kind, found = outcome(f"s3://{key}", storage_options=seaweed.options())
    assert hostile_files.SECRET not in repr(found)
    assert not place.sung.exists()
    assert kind != "FileNotFoundError"
