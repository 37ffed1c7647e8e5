"""The files that a folder and a glob stand for, and the files that are left out."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.storage.local import LocalStorage
from penstock.storage.paths import expand

RECORD = {"a": [1, 2]}


def laid(folder: Path, *names: str) -> Path:
    """A folder with TFRecord files that have these names; a name that ends with a slash makes a folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        ps.write(RECORD, path, format="tfrecord", index=False, overwrite=True)
    return folder


def read(folder: Path, source: str = "") -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paths = ps.open(f"{folder}/{source}" if source else folder, index="never").paths
    return [os.path.relpath(path, folder) for path in paths]


# -- the names ------------------------------------------------------------------------------------

NO_DATA = ["_SUCCESS", "_metadata", "_common_metadata", "_started_1", "_committed_9", "SUCCESS",
           "a.incomplete", "a.part", "a.tmp", "a.tfrecord.crc", ".a.tfrecord", "_temporary/0/a", "_delta_log/0.json",
           ".git/a", "x.incomplete/a", "_SUCCESS.crc", "A.TMP", "Thumbs.db", "desktop.ini", "__MACOSX/a"]  # fmt: skip
DATA = ["_a.tfrecord", "__a", "success", "_success", "_Metadata", "temporary/a", "a.temp", "part-0",
        "a.partial", "crc", "_x/a", "delta_log/a", "SUCCESS.tfrecord"]  # fmt: skip


@pytest.mark.parametrize("name", NO_DATA)
@pytest.mark.parametrize("folder", ["", "deep/er/"])
@pytest.mark.filterwarnings("ignore:.*left out")
def test_a_name_that_is_not_data_is_listed_and_opens_if_it_is_named(
    tmp_path: Path, name: str, folder: str
) -> None:
    laid(tmp_path, "a.tfrecord", folder + name)
    ds = ps.open(tmp_path, index="never")
    assert ds.paths == (str(tmp_path / "a.tfrecord"),)
    ((path, reason),) = ds.skipped_files
    assert (tmp_path / folder / name).is_relative_to(path)
    assert reason
    assert len(ps.open(tmp_path / folder / name, format="tfrecord", index="never")) == 2


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("folder", ["", "deep/er/"])
def test_every_other_name_is_data(tmp_path: Path, name: str, folder: str) -> None:
    laid(tmp_path, "a.tfrecord", folder + name)
    assert read(tmp_path) == sorted(["a.tfrecord", folder + name])
    assert read(tmp_path, "**") == sorted(["a.tfrecord", folder + name])


@pytest.mark.parametrize(
    ("name", "is_warned"),
    [(name, not name.startswith((".", "_SUCC", "_meta", "_comm", "_start", "SUCC", "a.tfrecord", "Thumbs", "desk", "__MAC")))
     for name in NO_DATA],
)  # fmt: skip
def test_one_warning_names_what_looks_like_data(tmp_path: Path, name: str, is_warned: bool) -> None:
    laid(tmp_path, "a.tfrecord", name)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ds = ps.open(tmp_path, index="never")
        list(ds.scan())
    assert len(told) == is_warned
    if is_warned:
        assert os.path.basename(ds.skipped_files[0].path) in str(told[0].message)
        assert told[0].filename == __file__


def test_info_lists_what_was_left_out(tmp_path: Path) -> None:
    laid(tmp_path, "a.tfrecord", "_SUCCESS", "more/.b")
    found = ps.info(tmp_path).skipped_files
    assert [os.path.relpath(path, tmp_path) for path, _ in found] == ["_SUCCESS", "more/.b"]


@pytest.mark.filterwarnings("ignore:.*left out")
def test_links_to_folders_are_not_followed_and_loops_end(tmp_path: Path) -> None:
    laid(tmp_path, "d/a.tfrecord", "d/in/b.tfrecord", "far/c.tfrecord")
    (tmp_path / "d/loop").symlink_to(tmp_path / "d")
    (tmp_path / "d/in/up").symlink_to("..")
    (tmp_path / "d/far").symlink_to(tmp_path / "far")
    (tmp_path / "d/lost.tfrecord").symlink_to("nothing")
    (tmp_path / "d/linked.tfrecord").symlink_to(tmp_path / "far/c.tfrecord")
    os.mkfifo(tmp_path / "d/pipe")
    expected = ["a.tfrecord", "in/b.tfrecord", "linked.tfrecord"]
    assert read(tmp_path / "d") == expected
    assert read(tmp_path / "d", "**") == expected
    assert read(tmp_path / "d", "**/*.tfrecord") == expected
    assert read(tmp_path, "d/far/*") == ["d/far/c.tfrecord"]
    assert read(tmp_path, "d/f*/*") == ["d/far/c.tfrecord"]
    found = {Path(path).name: reason for path, reason in ps.open(tmp_path / "d").skipped_files}
    assert {name for name, reason in found.items() if "link to a folder" in reason} == {
        "loop",
        "far",
        "up",
    }
    assert "link to a missing file" in found["lost.tfrecord"]
    assert "pipe" in found["pipe"]


def test_folders_in_each_other_are_bounded(tmp_path: Path) -> None:
    deep = "/".join("d" * 120)
    laid(tmp_path, f"{deep}/a.tfrecord")
    for source in (tmp_path, tmp_path / "**", f"{tmp_path}/**/*.tfrecord"):
        with pytest.raises(ps.LimitError):
            ps.open(source)
    with pytest.raises(FileNotFoundError, match="no data in this folder"):
        shutil.rmtree(tmp_path / "d/d")
        ps.open(tmp_path)


# -- against a slow and plain reading of the rules ------------------------------------------------

PARTS = ["a", "b.x", "_c", ".h", "_temporary", "_delta_log", "_SUCCESS", "SUCCESS", "x.tmp",
         "y.part", "z.crc", "_started1", "w.incomplete", "*", "[a]", "ä"]  # fmt: skip
TREES = st.lists(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("/".join), min_size=1, max_size=12
)
GLOBS = st.lists(
    st.sampled_from(
        ["*", "**", "a", "_*", "?*", "*.x", "[!_]*", "*.tmp", ".*", "_temporary", "[[]a]"]
    ),
    min_size=1,
    max_size=4,
).map("/".join)


def oracle_is_data(name: str) -> bool:
    wrong = [".*", "*.incomplete", "*.part", "*.tmp", "*.crc", "SUCCESS", "_SUCCESS", "_metadata",
             "_common_metadata", "_started*", "_committed*", "_temporary", "_delta_log"]  # fmt: skip
    return not any(fnmatch.fnmatchcase(name, one) for one in wrong)


def oracle_matches(parts: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        rest = pattern[1:] or ["*"]
        deeper = parts and oracle_is_data(parts[0]) and oracle_matches(parts[1:], pattern)
        return oracle_matches(parts, rest) or bool(deeper)
    if not parts:
        return False
    name, one = parts[0], pattern[0]
    if not re.search(r"[*?\[]", one):
        fits = name == one
    else:
        is_shown = oracle_is_data(name) or (
            one in ("*.tmp", ".*") and fnmatch.fnmatchcase(name, one)
        )
        fits = is_shown and fnmatch.fnmatchcase(name, one)
    return fits and oracle_matches(parts[1:], pattern[1:])


def made(folder: Path, tree: list[str]) -> list[str]:
    """Make empty files, except where a folder has that name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    files: set[str] = set()
    for name in tree:
        parents = {os.path.dirname(name)[:n] for n in range(len(name))}
        if any(one.startswith(f"{name}/") for one in files) or parents & files:
            continue
        files.add(name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return sorted(files)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=TREES, pattern=GLOBS)
def test_folders_and_globs_mean_what_the_rules_say(
    tmp_path: Path, tree: list[str], pattern: str
) -> None:
    folder = tmp_path / "t"
    files = made(folder, tree)
    below = [one for one in files if all(map(oracle_is_data, one.split("/")))]
    matched = [one for one in files if oracle_matches(one.split("/"), pattern.split("/"))]
    if os.path.exists(folder / pattern):
        matched = below if pattern == "" else []  # a plain name, not a pattern
    for source, expected in ((str(folder), below), (f"{folder}/{pattern}", matched)):
        if source != str(folder) and not re.search(r"[*?\[]", pattern):
            continue
        if source != str(folder) and os.path.exists(source):
            continue
        try:
            found = expand(source, LocalStorage()).paths
        except FileNotFoundError:
            found = []
        assert [os.path.relpath(path, folder) for path in found] == expected, source


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=TREES)
def test_every_file_is_read_or_listed(tmp_path: Path, tree: list[str]) -> None:
    folder = tmp_path / "t"
    files = made(folder, tree)
    try:
        paths, skipped, *_ = expand(str(folder), LocalStorage())
    except FileNotFoundError:
        return
    left = [path for path, _ in skipped]
    for name in files:
        path = f"{folder}/{name}"
        is_left = any(path == one or path.startswith(one + "/") for one in left)
        assert (path in paths) != is_left, name


# -- folders that are more than their files -------------------------------------------------------


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\xff\xd8\xff\xd9")


def test_names_with_an_underscore_are_images_and_classes(tmp_path: Path) -> None:
    for name in ("_DSC1.JPG", "_metadata.jpg", "a.jpg", ".b.jpg", "c.jpg.part"):
        for label in ("_temporary", "_delta_log", "cat", ".hidden"):
            picture(tmp_path / label / name)
    (tmp_path / "_SUCCESS").touch()
    with pytest.warns(UserWarning, match=r"c\.jpg\.part"):
        ds = ps.open(tmp_path)
    labels = [one["label"] for one in ds]
    assert labels == ["_delta_log"] * 3 + ["_temporary"] * 3 + ["cat"] * 3
    names = {os.path.relpath(path, tmp_path) for path, _ in ds.skipped_files}
    assert {"_SUCCESS", ".hidden", "cat/.b.jpg", "cat/c.jpg.part"} <= names


def test_captions_next_to_images_give_a_warning(tmp_path: Path) -> None:
    picture(tmp_path / "1.jpg")
    (tmp_path / "1.txt").write_text("a dog")
    with pytest.warns(UserWarning, match=r"1\.txt"):
        assert len(ps.open(tmp_path)) == 1


def test_images_that_a_table_does_not_name_are_listed(tmp_path: Path) -> None:
    for n in range(3):
        picture(tmp_path / f"{n}.jpg")
    (tmp_path / "metadata.csv").write_text("file_name,n\n1.jpg,1\n")
    ds = ps.open(tmp_path, other_files="ignore")
    assert [Path(path).name for path, _ in ds.skipped_files] == ["0.jpg", "2.jpg"]


def test_a_table_above_images_at_any_depth_is_a_table_of_images(tmp_path: Path) -> None:
    picture(tmp_path / "train" / "x" / "1.jpg")
    (tmp_path / "metadata.csv").write_text("file_name,n\ntrain/x/1.jpg,1\n")
    ds = ps.open(tmp_path)
    assert (ds.shards[0].format, ds[0]["n"]) == ("imagefolder", 1)


def test_a_table_above_shards_is_text_next_to_them(tmp_path: Path) -> None:
    laid(tmp_path, "x/1.tfrecord", "2.tfrecord")
    (tmp_path / "metadata.csv").write_text("a,b\n1,2\n")
    assert read(tmp_path) == ["2.tfrecord", "x/1.tfrecord"]
    (tmp_path / "2.tfrecord").unlink()
    assert read(tmp_path) == ["x/1.tfrecord"]


def test_folders_of_mds_are_read_by_their_indexes_at_any_depth(tmp_path: Path) -> None:
    shard = (
        '{"version": 2, "shards": [{"format": "mds", "samples": 1, "zip_data": null, "column_names": [], '
        '"column_encodings": [], "column_sizes": [], "raw_data": {"basename": "%s", "bytes": 3, "hashes": {}}}]}'
    )
    for folder, name in (("train", "b.mds"), ("val", "a.mds")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "index.json").write_text(shard % name)
        (tmp_path / folder / name).write_bytes(b"mds")
        (tmp_path / folder / "stray.mds").write_bytes(b"mds")
    found = expand(str(tmp_path), LocalStorage())
    assert [os.path.relpath(path, tmp_path) for path in found.paths] == ["train/b.mds", "val/a.mds"]
    assert [(Path(path).name, reason) for path, reason in found.skipped] == [
        ("stray.mds", "not listed in index.json")
    ] * 2
