"""An index reveals damage, and a rewritten file is not treated as damaged, for every framing."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from damaging import tell_the_old_state
from places import Place, at
from reading import sidecar_of

SEED = int(os.environ.get("PENSTOCK_SEED", "5"))
FLIPS = int(os.environ.get("PENSTOCK_FLIPS", "150"))
NAMES = ["a.tfrecord", "a.tar", "a.rec", "a.msgpack"]
per_name = pytest.mark.parametrize("name", NAMES)


def columns(name: str, count: int, label: int | None = None) -> dict[str, Any]:
    """Records of one size each; the label of record 57 can be changed."""
    labels = [n % 5 if n != 57 or label is None else label for n in range(count)]
    texts = [f"text {n:04}".encode() * 9 for n in range(count)]
    if name.endswith(".tar"):
        return {"__key__": [f"{n:04}" for n in range(count)], "cls": labels, "bin": texts}
    if name.endswith(".rec"):
        return {"label": pa.array(labels, pa.float32()), "image": texts}
    return {"label": labels, "text": texts}


def contents(path: Place, **options: Any) -> list[Any]:
    return [r for batch in ps.open(path, **options).scan() for r in batch.to_pylist()]


def kept(path: Path) -> dict[Path, bytes]:
    """The index next to a file."""
    found = {one: one.read_bytes() for one in path.parent.glob(f"*{path.name}*.penstock*")}
    found |= {one: one.read_bytes() for one in path.parent.glob(f".*{path.name}*.penstock*")}
    assert found
    return found


@per_name
@pytest.mark.parametrize("is_opened", [False, True])
def test_every_flipped_bit_that_an_index_can_detect_is_reported(
    name: str, is_opened: bool, tmp_path: Path
) -> None:
    path = tmp_path / name
    ps.write(columns(name, 100), path)
    if is_opened:
        assert len(ps.open(path)) == 100
    right, wanted = path.read_bytes(), contents(path)
    index, told = kept(path), path.stat()
    rng = random.Random(f"{SEED}{name}")
    for _ in range(FLIPS):
        data = bytearray(right)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        os.utime(path, ns=(told.st_atime_ns, told.st_mtime_ns))
        tell_the_old_state(index, path)
        # Reading must not change anything that hides the damage from the next reader.
        for _ in range(2):
            if not ps.verify(path).ok:
                continue
            try:
                found = contents(path)
            except ps.PenstockError:
                continue
            assert found == wanted, "silent"


@per_name
@pytest.mark.parametrize("made_by", ["writer", "reader", "verb"])
@pytest.mark.parametrize("how", ["in place", "replaced", "older"])
def test_a_rewritten_file_is_read_with_its_new_contents(
    name: str, made_by: str, how: str, tmp_path: Path
) -> None:
    if (made_by, how) == ("writer", "older"):
        pytest.skip(
            "a writer's index keeps no state of its file, and an older file is not newer than it"
        )
    path, other = tmp_path / name, tmp_path / f"other-{name}"
    ps.write(columns(name, 100, 3), other, index=False)
    os.utime(other, (1e9, 1e9))
    ps.write(columns(name, 100), path, index=made_by == "writer")
    if made_by == "reader":
        assert len(ps.open(path)) == 100
    elif made_by == "verb":
        ps.index(path)
    time.sleep(0.03)
    if how == "in place":
        path.write_bytes(other.read_bytes())
    else:
        if how == "replaced":
            os.utime(other)
        os.replace(other, path)
    wanted = contents(path, index="never")
    assert ps.verify(path).ok
    assert contents(path) == wanted
    assert ps.open(path).take([57]).to_pylist() == wanted[57:58]
    assert ps.verify(path).ok


@per_name
def test_a_copy_keeps_its_index(name: str, place: Place) -> None:
    if isinstance(place, Path):
        (place / "old").mkdir()
        (place / "new").mkdir()
    old, path = place / "old" / name, place / "new" / name
    ps.write(columns(name, 100), old)
    index = at(sidecar_of(path))
    path.write_bytes(old.read_bytes())
    index.write_bytes(at(sidecar_of(old)).read_bytes())
    assert contents(path) == contents(old)
    assert ps.open(path).take([57]).to_pylist() == contents(path)[57:58]
    assert index.exists()


@per_name
@pytest.mark.parametrize("made_by", ["writer", "reader", "verb"])
def test_an_object_that_was_replaced_is_read_with_its_new_contents(
    name: str, made_by: str, objects: Place
) -> None:
    """Whatever made the index beside it, and whether its records moved or not."""
    path, other = objects / name, objects / f"other-{name}"
    for count in (100, 90):
        ps.write(columns(name, count, 3), other, index=False, overwrite=True)
        ps.write(columns(name, 100), path, index=made_by == "writer", overwrite=True)
        if made_by == "reader":
            assert len(ps.open(path, index="beside")) == 100
        elif made_by == "verb":
            ps.index(path)
        path.write_bytes(other.read_bytes())
        wanted = contents(path, index="never")
        assert len(wanted) == count
        for _ in range(2):
            assert ps.verify(path).ok
            assert contents(path) == wanted
            assert ps.open(path).take([57]).to_pylist() == wanted[57:58]
            assert len(ps.open(path)) == count
