"""`cache`: what is cached, when, and under which file names, compared with TensorFlow."""

from __future__ import annotations

import gc
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as real  # noqa: ICN001 -- tf is whichever of the two

import penstock.tf as ours

Data = ours.data.Dataset


def numbers(dataset: Any) -> list[int]:
    return [int(x) for x in dataset]


def counted(tf: Any) -> tuple[list[int], Any]:
    """A dataset of ten numbers, and a list to which each number is added when it is made."""
    made: list[int] = []

    def stream() -> Any:
        for n in range(10):
            made.append(n)
            yield n

    return made, tf.data.Dataset.from_generator(
        stream, output_signature=tf.TensorSpec([], tf.int64)
    )


@pytest.mark.parametrize("tf", [real, ours], ids=["tensorflow", "penstock"])
@pytest.mark.parametrize("in_file", [False, True])
def test_only_a_whole_pass_is_kept(tf: Any, in_file: bool, tmp_path: Path) -> None:
    made, dataset = counted(tf)
    cached = dataset.cache(str(tmp_path / "c") if in_file else "")
    assert numbers(cached.take(3)) == [0, 1, 2]
    gc.collect()
    assert numbers(cached) == list(range(10))
    count = len(made)
    assert count > 10
    assert numbers(cached) == list(range(10))
    assert numbers(cached.take(4)) == [0, 1, 2, 3]
    assert len(made) == count


def test_a_shuffle_before_the_cache_is_frozen_and_a_later_one_is_not() -> None:
    before = Data.range(20).shuffle(20).cache()
    assert numbers(before) == numbers(before)
    behind = Data.range(20).cache().shuffle(20)
    assert numbers(behind) != numbers(behind)


def test_files_have_the_names_that_tensorflow_gives(tmp_path: Path) -> None:
    for tf, folder in ((real, tmp_path / "a"), (ours, tmp_path / "b")):
        folder.mkdir()
        iterator = iter(tf.data.Dataset.range(5).cache(str(folder / "c")))
        next(iterator)
        names = sorted(os.listdir(folder))
        assert "c_0.lockfile" in names
        assert any("tempstate" in name for name in names)
        for _ in iterator:
            pass
        del iterator
        gc.collect()
        assert sorted(os.listdir(folder)) == ["c.data-00000-of-00001", "c.index"]


def test_an_abandoned_pass_leaves_no_file(tmp_path: Path) -> None:
    iterator = iter(Data.range(5).cache(str(tmp_path / "c")))
    next(iterator)
    del iterator
    gc.collect()
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("tf", [real, ours], ids=["tensorflow", "penstock"])
def test_a_second_iterator_meanwhile_is_refused(tf: Any, tmp_path: Path) -> None:
    dataset = tf.data.Dataset.range(5).cache(str(tmp_path / "c"))
    first = iter(dataset)
    next(first)
    with pytest.raises(tf.errors.AlreadyExistsError):
        next(iter(dataset))
    if tf is ours:  # TensorFlow's refusal removes the files of the first cache
        assert len(list(first)) == 4


def test_a_finished_file_is_used_whatever_comes_upstream(tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    assert numbers(Data.range(5).cache(path)) == [0, 1, 2, 3, 4]
    assert numbers(Data.range(100, 103).cache(path)) == [0, 1, 2, 3, 4]
    with pytest.raises(ours.errors.InvalidArgumentError, match="other types"):
        list(Data.from_tensor_slices(["a"]).cache(path))


def test_any_dense_element_comes_back_from_a_file(tmp_path: Path) -> None:
    structure = {
        "b": (np.arange(6, dtype=np.float32).reshape(2, 3), np.array([True, False])),
        "a": np.array([[b"x", b""], [b"\0y", b"long" * 50]], object),
        "c": np.zeros((2, 0, 3), np.uint8),
    }
    dataset = Data.from_tensor_slices(structure)
    cached = dataset.cache(str(tmp_path / "c"))
    list(cached)
    for mine, expected in zip(cached, dataset, strict=True):
        assert list(mine) == list(expected)
        for one, other in zip(ours.nest.flatten(mine), ours.nest.flatten(expected), strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert np.array_equal(one, other)


def test_a_tensorflow_cache_or_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    theirs = str(tmp_path / "theirs")
    list(real.data.Dataset.range(5).cache(theirs))
    with pytest.raises(ours.errors.InvalidArgumentError, match="TensorFlow"):
        list(Data.range(5).cache(theirs))
    path = tmp_path / "mine"
    list(Data.from_tensor_slices(["a", "bc"]).cache(str(path)))
    data = tmp_path / "mine.data-00000-of-00001"
    whole = data.read_bytes()
    for end in range(len(whole)):
        data.write_bytes(whole[:end])
        with pytest.raises(ours.errors.DataLossError):
            list(Data.from_tensor_slices(["a", "bc"]).cache(str(path)))


def test_a_failing_pass_is_not_kept() -> None:
    fails = [True]

    def stream() -> Any:
        yield 1
        if fails.pop():
            fails.append(False)
            raise RuntimeError("once")
        fails.append(False)
        yield 2

    cached = Data.from_generator(stream, ours.int64, []).cache()
    with pytest.raises(RuntimeError):
        list(cached)
    assert numbers(cached) == [1, 2]


@pytest.mark.parametrize(
    "facts",
    [
        *({"dtypes": dtypes} for dtypes in (None, [7], ["no dtype"], ["int64"] * 2, [], [[]])),
        *({"num_elements": count} for count in (None, -1, 1.5, "3", 1 << 64)),
        *({"structure": one} for one in (None, 1, [0], {"dict": 7}, {"dict": [["a"]]}, {"tuple": 0}, {"x": 0})),
        {"structure": {"dict": [[[], 0]]}},
        {"dtypes": [], "structure": {"tuple": []}, "num_elements": 1 << 60},
        {"mark": [1]},
    ],
)  # fmt: skip
def test_an_index_with_other_contents_is_not_a_cache(tmp_path: Path, facts: Any) -> None:
    path = str(tmp_path / "c")
    list(Data.range(3).cache(path))
    index = Path(f"{path}.index")
    index.write_text(json.dumps({**json.loads(index.read_text()), **facts}))
    with pytest.raises(ours.errors.InvalidArgumentError, match="not a cache"):
        list(Data.range(3).cache(path))


@pytest.mark.parametrize("text", [b"[" * 100_000, b"[]", b"{}", b"\xff", b"", b"x" * (2 << 20)])
def test_an_invalid_index_is_not_a_cache(tmp_path: Path, text: bytes) -> None:
    path = str(tmp_path / "c")
    list(Data.range(3).cache(path))
    Path(f"{path}.index").write_bytes(text)
    with pytest.raises(ours.errors.InvalidArgumentError, match="not a cache"):
        list(Data.range(3).cache(path))


def test_a_cache_that_claims_very_many_texts_takes_no_memory(tmp_path: Path) -> None:
    """The cache has 32 bytes and claims four billion texts, for which memory was once allocated."""
    path = str(tmp_path / "c")
    list(Data.from_tensor_slices(["a"]).cache(path))
    data = Path(f"{path}.data-00000-of-00001")
    for count in (1 << 27, 1 << 32, 1 << 62):
        data.write_bytes(np.array([1, count, 1, 1], "<i8").tobytes())
        tracemalloc.start()
        with pytest.raises(ours.errors.DataLossError, match="ends too early"):
            list(Data.from_tensor_slices(["a"]).cache(path))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20
