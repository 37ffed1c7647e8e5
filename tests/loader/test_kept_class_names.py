"""Class names that were found by a pass over a column are stored in the indexes of the files, and are used as long as
the files do not change."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.framing.index import kept_classes, sidecar
from penstock.framing.index._index_cache import cache_folder
from penstock.loader import _class_names as class_names
from penstock.storage.local import LocalStorage
from reading import index_of, run_python

LABEL = pa.dictionary(pa.int32(), pa.string())
ENDINGS = ["parquet", "arrow", "tfrecord", "msgpack", "tar"]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The shards that each pass over a column reads."""
    made: list[list[int]] = []
    real = class_names.shard_batches

    def counted(dataset: Any, columns: Any, threads: Any, shards: Any, skipped: Any) -> Any:
        made.append(list(shards))
        return real(dataset, columns, threads, shards, skipped)

    monkeypatch.setattr(class_names, "shard_batches", counted)
    return made


def written(path: Path, names: list[str | None], **options: Any) -> str:
    label = pa.array(names, pa.string()).dictionary_encode()
    made = ps.write({"label": label, "n": list(range(len(names)))}, path, overwrite=True, **options)
    return made.paths[0]


def listed(paths: Any, **options: Any) -> list[str]:
    return ps.Loader(ps.open(paths, **options), 2, columns=["label"]).class_names["label"]


def classes_of(path: str, folder: str | None = None) -> Any:
    kept = sidecar.load(sidecar.path_for(path, folder), LocalStorage())
    return kept_classes.from_bytes(kept.classes)


@pytest.fixture(params=ENDINGS)
def paths(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Two files. The second has a name that sorts before one of the first."""
    parts = [["b", "a", "b"], ["c", "b", "d"]]
    return [written(tmp_path / f"{n}.{request.param}", names) for n, names in enumerate(parts)]


def test_the_next_loader_reads_no_column(paths: list[str], passes: list[list[int]]) -> None:
    assert listed(paths) == ["b", "a", "c", "d"]
    assert listed(paths) == ["b", "a", "c", "d"] and passes == [[0, 1]]
    assert listed(paths[::-1]) == ["c", "b", "d", "a"] and len(passes) == 1
    assert [row["label"] for row in ps.open(paths)] == ["b", "a", "b", "c", "b", "d"]
    assert ps.verify(paths).ok


def test_another_process_reads_no_column(paths: list[str]) -> None:
    assert listed(paths) == ["b", "a", "c", "d"]
    code = (
        "import sys, penstock as ps\n"
        "from penstock.loader import _class_names as class_names\n"
        "class_names.shard_batches = None\n"
        "print(*ps.Loader(ps.open(sys.argv[1:]), 2).class_names['label'])\n"
    )
    assert run_python(code, *paths).split() == ["b", "a", "c", "d"]


def test_only_a_rewritten_file_is_read_again(paths: list[str], passes: list[list[int]]) -> None:
    listed(paths)
    written(Path(paths[0]), ["e", "a", "e"])
    assert listed(paths) == ["e", "a", "c", "b", "d"] and passes == [[0, 1], [0]]
    assert listed(paths) == ["e", "a", "c", "b", "d"] and len(passes) == 2


def test_a_file_that_was_replaced_by_another_is_read_again(
    paths: list[str], tmp_path: Path, passes: list[list[int]]
) -> None:
    listed(paths)
    other = written(tmp_path / f"other.{paths[0].rsplit('.')[-1]}", ["x", "y", "x"])
    shutil.copyfile(other, paths[0])
    for _ in range(2):  # the types stored for the old file are not used any more
        assert listed(paths, schema=pa.schema([("label", LABEL)])) == ["x", "y", "c", "b", "d"]
    assert passes == [[0, 1], [0]]


def test_a_file_with_appended_records_is_read_again(
    tmp_path: Path, passes: list[list[int]]
) -> None:
    path = written(tmp_path / "a.tfrecord", ["b", "a"])
    assert listed(path) == ["b", "a"]
    ps.append({"label": ["c", "a"], "n": [2, 3]}, path)
    assert listed(path, schema=pa.schema([("label", LABEL)])) == ["b", "a", "c"]
    assert passes == [[0], [0]]


def _cut(data: bytes) -> bytes:
    return data[:-70]


def _flipped(data: bytes) -> bytes:
    at = data.index(b'{"label"')
    return data[: at + 2] + b"L" + data[at + 3 :]


@pytest.mark.parametrize("damage", [_cut, _flipped])
def test_damage_in_the_kept_names_causes_another_pass(
    damage: Callable[[bytes], bytes], tmp_path: Path, passes: list[list[int]]
) -> None:
    path = written(tmp_path / "a.parquet", ["b", "a"])
    folder = str(tmp_path / "kept")
    assert listed(path, index=folder) == ["b", "a"]
    kept = Path(sidecar.path_for(path, folder))
    kept.write_bytes(damage(kept.read_bytes()))
    assert listed(path, index=folder) == ["b", "a"] and passes == [[0], [0]]
    assert listed(path, index=folder) == ["b", "a"] and len(passes) == 2


@pytest.mark.parametrize(
    "claim",
    [b"[]", b"{", b"[" * 9999, b'{"label":["a","a"]}', b'{"label":[1]}', b'{"label":"ab"}',
     b'{"label":{"a":1}}', b'{"other":["z"]}', b"\xff\xfe"],
)  # fmt: skip
def test_kept_names_that_are_not_lists_cause_another_pass(
    claim: bytes, tmp_path: Path, passes: list[list[int]]
) -> None:
    path = written(tmp_path / "a.tfrecord", ["b", "a"])
    index = sidecar.load(str(index_of(path)), LocalStorage())
    sidecar.save(replace(index, classes=claim), path, LocalStorage())
    assert listed(path) == ["b", "a"] and passes == [[0]]


def test_that_a_column_has_too_many_names_is_kept(tmp_path: Path, passes: list[list[int]]) -> None:
    many = [f"{n:x}" for n in range(kept_classes.MOST_NAMES + 1)]
    paths = [
        written(tmp_path / f"{n}.parquet", names) for n, names in enumerate([["a"], many, ["b"]])
    ]
    for _ in range(2):
        assert ps.Loader(ps.open(paths), 2, columns=["label"]).class_names == {}
    assert passes == [[0, 1, 2]]
    index = [classes_of(path, cache_folder()) for path in paths[:2]]
    assert index == [{"label": ("a",)}, {"label": None}]
    assert not os.path.exists(sidecar.path_for(paths[2], cache_folder()))
    too_long = kept_classes.to_bytes({"label": ("x" * (1 << 24),)})
    assert too_long == b"" and kept_classes.from_bytes(b" " * (17 << 20)) == {}


def test_names_of_each_file_are_kept_even_if_all_files_together_have_too_many(
    tmp_path: Path, passes: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_names, "MOST_NAMES", 3)
    parts = [["a", "b"], ["c", "d"], ["e"]]
    paths = [written(tmp_path / f"{n}.parquet", names) for n, names in enumerate(parts)]
    assert ps.Loader(ps.open(paths), 2, columns=["label"]).class_names == {}
    assert listed(paths[:1]) == ["a", "b"] and passes == [[0, 1, 2]]
    assert listed(paths[1:]) == ["c", "d", "e"] and passes == [[0, 1, 2], [0, 1]]


def test_nothing_is_kept_if_no_index_is_allowed(tmp_path: Path, passes: list[list[int]]) -> None:
    path = written(tmp_path / "a.parquet", ["b", "a"])
    for _ in range(2):
        assert listed(path, index="never") == ["b", "a"]
    assert passes == [[0], [0]] and not index_of(path).exists()
    assert not os.path.exists(sidecar.path_for(path, cache_folder()))


def test_nothing_is_kept_if_records_were_skipped(tmp_path: Path, passes: list[list[int]]) -> None:
    path = Path(written(tmp_path / "a.tfrecord", ["bbbb", "aaaa", "cccc"]))
    data = path.read_bytes()
    place = os.stat(path)
    path.write_bytes(data.replace(b"aaaa", b"aaab"))
    os.utime(path, ns=(place.st_atime_ns, place.st_mtime_ns))
    for _ in range(2):
        assert listed(path, damage="skip") == ["bbbb", "cccc"]
    assert len(passes) == 2


def test_class_names_of_overlays_and_unverified_records_are_not_kept(
    tmp_path: Path, passes: list[list[int]]
) -> None:
    path = written(tmp_path / "a.tfrecord", ["b", "a"])
    ps.add_fields(path, {"kind": pa.array(["x", "y"]).dictionary_encode()})
    for _ in range(2):
        loader = ps.Loader(ps.open(path), 2, columns=["kind"])
        assert loader.class_names == {"kind": ["x", "y"]}
        assert listed(path, checksums="none") == ["b", "a"]
    assert len(passes) == 4 and classes_of(path) == {}


def test_names_of_several_columns_are_kept_and_the_rest_of_the_index_stays(
    tmp_path: Path, passes: list[list[int]]
) -> None:
    parts = {"kind": pa.array(["x", "y"]).dictionary_encode()}
    kinds = pa.StructArray.from_arrays(list(parts.values()), list(parts))
    label = pa.array(["b", "a"]).dictionary_encode()
    paths = [
        ps.write({"label": label, "object": kinds}, tmp_path / name).paths[0]
        for name in ("a.parquet", "a.msgpack")
    ]
    for path in paths:
        passes.clear()
        ps.index(path, checksums=True)
        before = sidecar.load(str(index_of(path)), LocalStorage())
        for _ in range(2):
            loader = ps.Loader(ps.open(path), 2)
            assert loader.class_names == {"label": ["b", "a"], "object.kind": ["x", "y"]}
        assert passes == [[0], [0]]
        after = sidecar.load(str(index_of(path)), LocalStorage())
        assert after.schema == before.schema and after.blocks.tolist() == before.blocks.tolist()
        assert classes_of(path) == {"label": ("b", "a"), "object.kind": ("x", "y")}
        assert ps.verify(path).ok and len(ps.open(path, checksums="index").take([0, 1])) == 2


def test_names_that_are_not_utf8_are_kept(tmp_path: Path, passes: list[list[int]]) -> None:
    label = pa.array([b"\xff", b"a"]).dictionary_encode()
    ps.write({"label": label}, tmp_path / "a.parquet")
    for _ in range(2):
        with pytest.raises(ps.SchemaError, match="not UTF-8"):
            ps.Loader(ps.open(tmp_path / "a.parquet"), 2)
    assert passes == [[0]]


def test_opening_reads_no_class_names(paths: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    listed(paths)
    monkeypatch.setattr(kept_classes, "from_bytes", None)
    assert len(ps.open(paths)) == 6


def test_names_are_kept_in_the_folder_given_as_index(
    tmp_path: Path, passes: list[list[int]]
) -> None:
    path = written(tmp_path / "a.tfrecord", ["b", "a"])
    folder = str(tmp_path / "kept")
    for _ in range(2):
        assert listed(path, index=folder, schema=pa.schema([("label", LABEL)])) == ["b", "a"]
    assert passes == [[0]] and classes_of(path, folder) == {"label": ("b", "a")}
    assert classes_of(path) == {}
