"""Operations on files and folders: the same steps in penstock.tf and in TensorFlow, each in its own folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.tf as tf

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tensorflow = pytest.importorskip("tensorflow")

Act = Callable[[Any, str], Any]


def value(found: Any) -> Any:
    """The result of a function, as plain values."""
    if hasattr(found, "numpy"):
        found = found.numpy()
    if isinstance(found, np.ndarray):
        return [str(found.dtype), found.tolist()]
    if hasattr(found, "length"):
        return (found.length, bool(found.is_directory))
    return found


def outcome(module: Any, folder: str, act: Act) -> Any:
    try:
        return value(act(module, folder))
    except module.errors.OpError as error:
        return type(error).__name__


STEPS: list[Act] = [
    lambda m, f: m.io.read_file(f"{f}/nowhere"),
    lambda m, f: m.io.read_file(f),
    lambda m, f: m.io.read_file([f, f]),
    lambda m, f: m.io.write_file(f"{f}/x/y/z", b"abc"),
    lambda m, f: m.io.write_file(m.constant(f"{f}/x/b.txt"), m.constant("é")),
    lambda m, f: m.io.write_file(f"{f}/x", b"abc"),
    lambda m, f: m.io.read_file(f"{f}/x/y/z"),
    lambda m, f: m.io.read_file(m.constant(f"{f}/x/b.txt")),
    lambda m, f: len(m.io.matching_files(f"{f}/x/*").numpy()),
    lambda m, f: [
        os.path.basename(p) for p in m.io.matching_files([f"{f}/x/?", f"{f}/x/[b]*"]).numpy()
    ],
    lambda m, f: m.io.matching_files(f"{f}/nothing*"),
    lambda m, f: [m.io.gfile.exists(f"{f}/{n}") for n in ("x", "x/y/z", "q")],
    lambda m, f: [m.io.gfile.isdir(f"{f}/{n}") for n in ("x", "x/y/z", "q")],
    lambda m, f: sorted(m.io.gfile.listdir(f"{f}/x")),
    lambda m, f: m.io.gfile.listdir(f"{f}/q"),
    lambda m, f: [os.path.basename(p) for p in m.io.gfile.glob([f"{f}/x/*", f"{f}/x/b*"])],
    lambda m, f: m.io.gfile.mkdir(f"{f}/q/r"),
    lambda m, f: m.io.gfile.mkdir(f"{f}/x"),
    lambda m, f: m.io.gfile.makedirs(f"{f}/x/deep/er"),
    lambda m, f: m.io.gfile.makedirs(f"{f}/x"),
    lambda m, f: m.io.gfile.copy(f"{f}/x/y/z", f"{f}/c"),
    lambda m, f: m.io.gfile.copy(f"{f}/x/y/z", f"{f}/c"),
    lambda m, f: m.io.gfile.copy(f"{f}/x/b.txt", f"{f}/c", overwrite=True),
    lambda m, f: m.io.gfile.copy(f"{f}/q", f"{f}/d"),
    lambda m, f: m.io.gfile.rename(f"{f}/c", f"{f}/x/b.txt"),
    lambda m, f: m.io.gfile.rename(f"{f}/c", f"{f}/d"),
    lambda m, f: m.io.gfile.rename(f"{f}/d", f"{f}/x/b.txt", overwrite=True),
    lambda m, f: m.io.gfile.rename(f"{f}/q", f"{f}/d"),
    lambda m, f: m.io.gfile.stat(f"{f}/x/b.txt"),
    lambda m, f: m.io.gfile.stat(f"{f}/q"),
    lambda m, f: [(p[len(f) :], sorted(d), sorted(n)) for p, d, n in m.io.gfile.walk(f)],
    lambda m, f: [p[len(f) :] for p, _, _ in m.io.gfile.walk(f, topdown=False)],
    lambda m, f: m.io.gfile.remove(f"{f}/q"),
    lambda m, f: m.io.gfile.remove(f"{f}/x/b.txt"),
    lambda m, f: m.io.gfile.rmtree(f"{f}/q"),
    lambda m, f: m.io.gfile.rmtree(f"{f}/x"),
    lambda m, f: os.listdir(f),
    lambda m, f: m.io.gfile.join("a", "b", "c"),
]


def test_files_and_folders_are_handled_as_in_tensorflow(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    for number, act in enumerate(STEPS):
        ours = outcome(tf, str(tmp_path / "ours"), act)
        theirs = outcome(tensorflow, str(tmp_path / "theirs"), act)
        assert ours == theirs, f"step {number}"


def in_gfile(module: Any, path: str, mode: str, *acts: Callable[[Any], Any]) -> list[Any]:
    found: list[Any] = []
    file = module.io.gfile.GFile(path, mode)
    for act in acts:
        try:
            found.append(act(file))
        except module.errors.OpError as error:
            found.append(type(error).__name__)
    file.close()
    return found


def test_gfile_reads_and_writes_as_in_tensorflow(tmp_path: Path) -> None:
    def steps(module: Any, path: str) -> list[Any]:
        return [
            in_gfile(module, path, "r", lambda f: f.read()),
            in_gfile(module, path, "w", lambda f: f.write("abc\ndé\n"), lambda f: f.read()),
            in_gfile(module, path, "r", lambda f: f.read(), lambda f: f.write("x")),
            in_gfile(
                module, path, "rb", lambda f: f.read(2), lambda f: f.tell(), lambda f: f.read()
            ),
            in_gfile(module, path, "rb", lambda f: f.seek(-3, 2), lambda f: f.read()),
            in_gfile(module, path, "r", lambda f: f.readline(), lambda f: f.readlines(), list),
            in_gfile(module, path, "r", list, lambda f: f.size(), lambda f: f.seekable()),
            in_gfile(module, path, "a", lambda f: f.write("more"), lambda f: f.flush()),
            in_gfile(
                module, path, "rb", lambda f: f.read(), lambda f: f.close(), lambda f: f.read()
            ),
            in_gfile(module, path, "wb", lambda f: f.write(b"\xff"), lambda f: f.write("x")),
            in_gfile(module, path, "rb", lambda f: f.read(), lambda f: (f.mode, f.name == path)),
        ]

    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    assert steps(tf, ours) == steps(tensorflow, theirs)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.gfile.GFile(ours, "q")
    with tf.io.gfile.GFile(ours) as file, pytest.raises(UnicodeDecodeError):
        file.read()


def test_missing_files_are_missing_in_both_senses(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        tf.io.read_file(str(tmp_path / "nowhere"))
    with pytest.raises(tf.errors.NotFoundError):
        tf.io.read_file(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "made",
    [
        np.arange(6, dtype=np.int64).reshape(2, 3),
        np.float32(1.5),
        np.zeros((0, 3), np.float16),
        np.array([True, False]),
        np.array([b"a", b"bcd"], object),
        np.array(["x"]),
        np.arange(300, dtype=np.uint8),
        np.array([[]], np.complex64),
    ],
)
def test_tensors_are_serialized_and_parsed_as_in_tensorflow(made: Any) -> None:
    ours = tf.io.serialize_tensor(made).numpy()
    assert ours == tensorflow.io.serialize_tensor(made).numpy()
    back = tf.io.parse_tensor(ours, tf.as_dtype(made.dtype))
    assert value(back) == value(tf.convert_to_tensor(made))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Type mismatch"):
        tf.io.parse_tensor(ours, tf.int16)
    for end in range(len(ours)):
        try:
            tf.io.parse_tensor(ours[:end], tf.as_dtype(made.dtype))
        except tf.errors.InvalidArgumentError:
            pass
