"""tf.sparse, tf.ragged and tf.io.decode_raw, compared with TensorFlow's."""

from __future__ import annotations

import os
import random
import re
import warnings
from typing import Any

import numpy as np
import pytest
from parse_programs import answer

import penstock.tf as ours

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
theirs = tf

OURS = ours


def alike(program: Any) -> None:
    """Check for the same result from both libraries, or errors of one class with TensorFlow's first words."""
    found, expected = told(program, OURS), told(program, theirs)
    if isinstance(expected, tuple):
        assert found[0] == expected[0]
        assert (
            re.split(r"[.\n;<]|, the| Many|, but element| allowed values", expected[1])[0]
            in found[1]
        )
    else:
        assert found == expected


def told(program: Any, tf: Any) -> Any:
    def run() -> Any:
        found = program(tf)
        return {"": found} if not isinstance(found, dict) else found

    found = answer(run)
    return found if isinstance(found[0], str) else found[0]


@pytest.mark.parametrize(
    "program",
    [
        lambda tf: tf.SparseTensor([[0, 1], [2, 0]], [5, 6], [3, 2]),
        lambda tf: tf.SparseTensor(np.zeros((0, 1)), np.zeros(0, np.float32), [3]),
        lambda tf: tf.SparseTensor([[1]], [1, 2], [3]),
        lambda tf: tf.SparseTensor([[1, 2]], [1], [3]),
        lambda tf: tf.SparseTensor([1], [1], [3]),
        lambda tf: tf.sparse.to_dense(tf.SparseTensor([[0, 1], [2, 0]], [5, 6], [3, 2])),
        lambda tf: tf.sparse.to_dense(tf.SparseTensor([[1]], [b"x"], [3])),
        lambda tf: tf.sparse.to_dense(tf.SparseTensor([[1]], [b"x"], [3]), "no"),
        lambda tf: tf.sparse.to_dense(tf.SparseTensor([[1]], [1.5], [3]), -1),
        lambda tf: tf.sparse.to_dense(tf.SparseTensor([[5]], [1], [3])),
        lambda tf: tf.sparse.to_dense(tf.SparseTensor([[2], [1]], [1, 2], [3])),
        lambda tf: tf.sparse.to_dense(tf.SparseTensor([[1], [1]], [1, 2], [3])),
        lambda tf: tf.sparse.to_dense(tf.SparseTensor([[1], [1]], [1, 2], [3]), None, False),
        lambda tf: tf.sparse.to_dense(tf.SparseTensor([[1]], [1], [3]), [1]),
        lambda tf: tf.sparse.from_dense([[0, 7], [8, 0]]),
        lambda tf: tf.sparse.from_dense([["", b"a"]]),
        lambda tf: tf.sparse.from_dense([0.0, 0.0]),
        lambda tf: tf.sparse.reorder(tf.SparseTensor([[2], [0], [2]], [5, 6, 7], [3])),
        lambda tf: tf.sparse.reorder(tf.SparseTensor([[1, 0], [0, 2], [0, 1]], [5, 6, 7], [2, 3])),
        lambda tf: tf.SparseTensor([[0]], [1], [2]).with_values([b"a"]),
    ],
)
def test_sparse_tensors_are_as_tensorflows(program: Any) -> None:
    alike(program)


NESTED: list[Any] = [
    [[1, 2], [], [3]],
    [[]],
    [],
    [[["a"], []], [["b", "c"]]],
    [[1.5, 2], [3]],
    [[1], [2]],
    [[[1, 2], [3, 4]], [[5]]],
    [[[1, 2]], [[3, 4], [5, 6]]],
    [[[], []], []],
    [1, 2],
    [[1], 2],
    [[1], [[]]],
]


@pytest.mark.parametrize("nested", NESTED, ids=repr)
def test_ragged_constants_are_as_tensorflows(nested: Any) -> None:
    alike(lambda tf: tf.ragged.constant(nested))
    alike(lambda tf: tf.ragged.constant(nested, row_splits_dtype=tf.int32))
    for rank in (1, 2):
        with_rank = lambda tf: tf.ragged.constant(nested, ragged_rank=rank)  # noqa: B023, E731
        if not isinstance(told(with_rank, theirs), tuple):
            alike(with_rank)


@pytest.mark.parametrize("nested", [nested for nested in NESTED[:9] if nested], ids=repr)
def test_ragged_tensors_print_and_convert_as_tensorflows(nested: Any) -> None:
    mine, other = ours.ragged.constant(nested), theirs.ragged.constant(nested)
    assert repr(mine) == repr(other)
    assert str(mine) == str(other)
    assert mine.to_list() == other.to_list()
    assert repr(mine.numpy()) == repr(other.numpy())
    assert (mine.shape.as_list(), mine.ragged_rank) == (other.shape.as_list(), other.ragged_rank)


R2 = [[[1, 2], []], [], [[3], [4, 5, 6]]]


@pytest.mark.parametrize(
    "program",
    [
        lambda r: r[0],
        lambda r: r[-1],
        lambda r: r[3],
        lambda r: r[1:],
        lambda r: r[::2],
        lambda r: r[5:],
        lambda r: r[2:1],
        lambda r: r[:, 1:],
        lambda r: r[:, :-1],
        lambda r: r[1:, :1],
        lambda r: r[..., :1],
        lambda r: r[0, 0],
        lambda r: r[:, 0],
        lambda r: r[2, 1:],
        lambda r: r.row_lengths(),
        lambda r: r.row_starts(),
        lambda r: r.row_limits(),
        lambda r: r.value_rowids(),
        lambda r: r.nrows(),
        lambda r: r.bounding_shape(),
        lambda r: r.bounding_shape(axis=0),
        lambda r: r.bounding_shape(axis=1, out_type="int32"),
        lambda r: r.to_tensor(),
        lambda r: r.to_tensor(-1),
        lambda r: r.with_flat_values(r.flat_values * 2),
        lambda r: r.with_row_splits_dtype("int32"),
    ],
)
@pytest.mark.parametrize("nested", [[[1, 2, 3], [], [4, 5]], R2], ids=["flat", "nested"])
def test_ragged_tensors_are_cut_as_tensorflows(nested: Any, program: Any) -> None:
    alike(lambda tf: program(tf.ragged.constant(nested)))


@pytest.mark.parametrize("shape", [[None, 2], [4, 4], [2, None], None])
def test_ragged_tensors_become_dense_as_tensorflows(shape: Any) -> None:
    alike(lambda tf: tf.ragged.constant([[1, 2, 3], [], [4, 5]]).to_tensor(9, shape=shape))
    deeper = None if shape is None else [*shape, None]
    alike(lambda tf: tf.ragged.constant(R2).to_tensor(shape=deeper))
    inner = [[[1, 2]], [[3, 4], [5, 6]]]
    alike(lambda tf: tf.ragged.constant(inner, ragged_rank=1).to_tensor())
    alike(lambda tf: tf.ragged.constant([["a"], ["b", "c"]]).to_tensor("-"))


def make_rows(name: str, values: Any, given: Any, validate: bool) -> Any:
    return lambda tf: getattr(tf.RaggedTensor, f"from_{name}")(values, given, validate=validate)


@pytest.mark.parametrize("validate", [False, True])
def test_rows_are_made_of_parts_as_tensorflow_makes_them(validate: bool) -> None:
    rng = random.Random(5)
    names = ["row_splits", "row_lengths", "row_starts", "row_limits", "value_rowids"]
    for _ in range(150):
        numbers = [
            rng.randrange(-1 if rng.random() < 0.2 else 0, 5) for _ in range(rng.randrange(5))
        ]
        if rng.random() < 0.7:
            numbers.sort()
        values, name = np.arange(rng.randrange(6)), rng.choice(names)
        given = np.asarray(numbers, rng.choice([np.int32, np.int64]))
        program = make_rows(name, values, given, validate)
        found, expected = told(program, OURS), told(program, theirs)
        if isinstance(expected, tuple):
            found, expected = found[0], expected[0]
        assert found == expected, (name, numbers, len(values))


def test_a_ragged_tensor_has_a_length_and_gives_its_rows() -> None:
    ragged = ours.ragged.constant([[1, 2], [], [3]])
    assert len(ragged) == 3
    assert [row.numpy().tolist() for row in ragged] == [[1, 2], [], [3]]
    assert ours.RaggedTensor.from_nested_row_lengths([1, 2, 3], [[1, 1], [2, 1]]).to_list() == [
        [[1, 2]],
        [[3]],
    ]
    uniform = ours.RaggedTensor.from_uniform_row_length([1, 2, 3, 4], 2)
    assert uniform.shape == [2, 2]
    assert uniform.to_list() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "program",
    [
        lambda io, tf: io(b"\1\0\2\0", tf.int16),
        lambda io, tf: io([b"\1\0\2\0", b"\1\0\2\1"], tf.int16, little_endian=False),
        lambda io, tf: io([b"\1\0\2\0", b"\1\0"], tf.int16),
        lambda io, tf: io(b"\1\0\2", tf.int16),
        lambda io, tf: io(b"", tf.int16),
        lambda io, tf: io([b"", b""], tf.float64),
        lambda io, tf: io(tf.constant([], tf.string), tf.int16),
        lambda io, tf: io(tf.constant([[]], tf.string), tf.int16),
        lambda io, tf: io(b"\1\2\0", tf.bool),
        lambda io, tf: io(b"\0\0\0\x40\0\0\x80\x3f", tf.complex64),
        lambda io, tf: io(b"\x40\0\0\0\x3f\x80\0\0", tf.complex64, False),
        lambda io, tf: io([[b"\1\0"]], tf.uint8),
        lambda io, tf: io("ab", tf.uint8),
        lambda io, tf: io(3, tf.uint8),
        lambda io, tf: io(b"ab", None),
        lambda io, tf: io(b"abcd", tf.uint32),
        lambda io, tf: io(b"abcd", tf.string),
        lambda io, tf: io(b"abcd", tf.bool, fixed_length=8),
        lambda io, tf: io([b"\1\0\2\0", b"\1\0"], tf.int16, fixed_length=6),
        lambda io, tf: io([b"\1\0\2\0", b"\1\0"], tf.int16, fixed_length=2),
        lambda io, tf: io([b"\1\0\2", b"\1"], tf.int16, False, fixed_length=4),
        lambda io, tf: io(b"\1\0", tf.int16, fixed_length=0),
        lambda io, tf: io(b"\1\0", tf.int16, fixed_length=3),
        lambda io, tf: io(tf.constant([], tf.string), tf.int16, fixed_length=4),
    ],
)
def test_raw_bytes_become_numbers_as_in_tensorflow(program: Any) -> None:
    alike(lambda tf: program(tf.io.decode_raw, tf))


@pytest.mark.parametrize("shape", [[None, 3], [None, None], [2, None], [None, None, 2], [2, 3]])
def test_ragged_batches_are_ragged_up_to_the_last_unknown_size(shape: list[int | None]) -> None:
    def batches(t: Any) -> list[Any]:
        def make() -> Any:
            for number in range(3):
                yield np.full([number + 1 if s is None else s for s in shape], number, np.float32)

        signature = t.TensorSpec(shape, t.float32)
        dataset = t.data.Dataset.from_generator(make, output_signature=signature).ragged_batch(2)
        spec = dataset.element_spec
        found: list[Any] = [spec.shape.as_list(), getattr(spec, "ragged_rank", 0)]
        for batch in dataset:
            flat = getattr(batch, "flat_values", batch)
            lengths = [row.numpy().tolist() for row in getattr(batch, "nested_row_splits", ())]
            found += [batch.shape.as_list(), lengths, flat.numpy().tolist()]
        return found

    assert batches(ours) == batches(theirs)
