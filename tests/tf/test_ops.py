"""Operations on tensors: each expression is evaluated by TensorFlow and by penstock.tf."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock.tf as tf

EQUAL = {
    "constants": lambda t: [
        t.constant(1),
        t.constant(1 << 40),
        t.constant([1.5, 2]),
        t.constant(True),
        t.constant([["a", "é"], [b"\xff", "b"]]),
        t.constant(np.arange(3)),
        t.constant(np.float64(2)),
        t.constant(7, shape=[2, 2]),
        t.constant([1, 2, 3, 4], t.int64, shape=(2, 2)),
        t.constant([], t.float32),
        t.constant(3, t.uint8),
    ],
    "cast": lambda t: [
        t.cast([1.8, -1.8, 0.0], d) for d in (t.int32, t.int64, t.bool, t.float64, t.float16)
    ],
    "cast of integers": lambda t: [
        t.cast(t.constant([0, 1, 300, -1]), d) for d in (t.uint8, t.bool)
    ],
    "cast of truth": lambda t: t.cast([True, False], t.float32),
    "saturating": lambda t: t.saturate_cast([300.0, -4.0, 7.9], t.uint8),
    "bitcast": lambda t: t.bitcast(t.constant([1.0, -2.0]), t.int32),
    "quotients": lambda t: [
        t.constant([1, 2], t.uint8) / 255,
        t.constant([1, 2], t.int16) / t.constant([3, 4], t.int16),
        t.constant([1, 2]) / 2,
        t.constant([1.0, 2.0]) / 3,
        t.constant(8) // 3,
        t.constant(-8) % 3,
        5 / t.constant([2.0]),
    ],
    "numbers beside tensors": lambda t: [
        t.constant([1, 2]) + 1,
        1.5 * t.constant([1.0, 2.0]),
        t.constant([1.0]) - 2,
        -t.constant([1, 2]),
        t.constant([1, 2]) > 1,
        t.constant([2, 3]) ** 2,
        t.constant([[1, 2], [3, 4]])[1, 0],
        t.constant([[1, 2], [3, 4]])[..., 0],
        t.constant([1, 2, 3])[1:],
        t.constant(["a", "b"])[1],
        t.constant(["a", "b"]) == "a",
    ],
    "shapes": lambda t: [
        t.shape(t.zeros([2, 3])),
        t.size(t.zeros([2, 3])),
        t.rank(t.zeros([2, 3])),
        t.reshape(t.range(6), [2, -1]),
        t.reshape(5, []),
        t.expand_dims(t.range(3), -1),
        t.squeeze(t.zeros([1, 2, 1])),
        t.squeeze(t.zeros([1, 2, 1]), 2),
        t.transpose(t.reshape(t.range(6), [2, 3])),
        t.transpose(t.zeros([2, 3, 4]), [2, 0, 1]),
        t.ensure_shape(t.zeros([2, 3]), [None, 3]),
        t.broadcast_to(t.range(3), [2, 3]),
    ],
    "joined and cut": lambda t: [
        t.stack([[1, 2], [3, 4]]),
        t.stack([t.constant([1, 2]), t.constant([3, 4])], axis=-1),
        *t.unstack(t.reshape(t.range(6), [2, 3])),
        *t.unstack(t.reshape(t.range(6), [2, 3]), axis=1),
        t.concat([t.range(2), t.range(3)], 0),
        t.concat([[[1], [2]], [[3], [4]]], axis=1),
        t.concat([["a"], ["b", "c"]], 0),
        *t.split(t.range(6), 3),
        *t.split(t.range(6), [1, 2, -1]),
        t.slice(t.reshape(t.range(6), [2, 3]), [0, 1], [2, -1]),
        t.gather([10, 20, 30], [2, 0]),
        t.gather([[1, 2], [3, 4]], 1, axis=1),
        t.boolean_mask([1, 2, 3], [True, False, True]),
        t.reverse([[1, 2], [3, 4]], [1]),
        t.tile([[1, 2]], [2, 2]),
        t.repeat([1, 2], [2, 1]),
        t.pad([[1]], [[0, 1], [2, 0]], constant_values=7),
        t.pad([1, 2, 3], [[2, 1]], "REFLECT"),
        t.pad([1, 2, 3], [[2, 1]], "SYMMETRIC"),
    ],
    "made": lambda t: [
        t.zeros([2], t.int64),
        t.zeros([2], t.string),
        t.ones([1, 2]),
        t.zeros_like([1, 2]),
        t.ones_like(t.constant([1.0])),
        t.fill([2, 2], 3.5),
        t.range(3),
        t.range(1, 7, 2),
        t.range(0.0, 1.0, 0.25),
        t.range(3, dtype=t.int64),
        t.one_hot([0, 2, -1, 5], 3),
        t.one_hot(1, 3, on_value=5, off_value=-1, dtype=t.int32),
        t.one_hot([0, 1], 2, axis=0),
        t.eye(2),
    ],
    "compared": lambda t: [
        t.equal([1, 2], [1, 3]),
        t.not_equal([1, 2], 1),
        t.less([1, 2], 2),
        t.greater_equal(t.constant([1.0, 2.0]), 2),
        t.logical_and([True, False], True),
        t.logical_or([True, False], False),
        t.logical_not([True, False]),
        t.where([True, False, True]),
        t.where([[True, False]], [[1, 2]], [[3, 4]]),
        t.where(t.constant([1, -1]) > 0, t.constant([1.0, 2.0]), 0.0),
    ],
    "computed": lambda t: [
        t.maximum([1, 5], 3),
        t.minimum([1.0, 5.0], 3),
        t.clip_by_value([-1.0, 0.5, 3.0], 0, 1),
        t.clip_by_value(t.constant([-np.inf, -0.5, 0.5, np.nan, np.inf]), 0.0, t.constant(1.0)),
        t.clip_by_value(t.constant([-1.0, 0.5, 3.0], t.float64), [0.0, 1.0, 2.0], 2.5),
        t.clip_by_value(t.constant([-1.0, 0.5], t.float16), 0.0, 0.25),
        t.clip_by_value(t.range(5), 1, 3),
        t.abs([-1, 2]),
        t.square([1.5, 2]),
        t.sqrt([4.0, 9.0]),
        t.round([0.5, 1.5, 2.4]),
        t.floor([1.5, -1.5]),
        t.math.ceil([1.5, -1.5]),
        t.sign([-2.0, 0.0, 3.0]),
        t.add([1], [2]),
        t.subtract([1], 2),
        t.multiply([2.0], 3),
        t.divide([1.0], 2.0),
        t.pow([2.0], 3.0),
        t.matmul([[1.0, 2.0]], [[3.0], [4.0]]),
        t.math.is_nan([1.0, float("nan")]),
        t.cumsum([1, 2, 3]),
        t.cumsum([1, 2, 3], exclusive=True, reverse=True),
        t.sort([3, 1, 2], direction="DESCENDING"),
        t.argsort([3, 1, 2, 1]),
        t.argmax([[1, 9], [5, 2]]),
        t.argmax([[1, 9], [5, 2]], axis=1, output_type=t.int32),
        t.argmin([3, 1, 1]),
    ],
    "reduced": lambda t: [
        reduce(x, **how)
        for reduce in (t.reduce_sum, t.reduce_mean, t.reduce_max, t.reduce_min, t.reduce_prod)
        for x in (
            t.constant([[1, 2], [3, 5]]),
            t.constant([[1.5, 2], [3, 5]]),
            t.constant([[7, 8]], t.uint8),
        )
        for how in ({}, {"axis": 0}, {"axis": [0, 1], "keepdims": True}, {"axis": -1})
    ],
    "truth reduced": lambda t: [
        t.reduce_any([True, False]),
        t.reduce_all([[True], [False]], axis=0),
    ],
    "spread": lambda t: [
        t.math.reduce_std([1.0, 2.0, 4.0]),
        t.math.reduce_variance([[1.0, 2.0]], axis=1),
    ],
    "functions": lambda t: [
        t.function(lambda x: x + 1)(t.constant(1)),
        t.py_function(lambda x: x.numpy() + 1, [t.constant(1)], t.int32),
        *t.py_function(lambda x: (x, x * 2.0), [t.constant(1.5)], [t.float32, t.float32]),
        t.numpy_function(lambda x: x * 2, [t.constant([1.0])], t.float32),
        t.numpy_function(lambda s: s + b"!", [t.constant("a")], t.string),
        t.map_fn(lambda x: x * x, t.constant([1, 2, 3])),
        t.cond(t.constant(True), lambda: t.constant(1), lambda: t.constant(2)),
        t.convert_to_tensor([1, 2], t.float32),
        t.identity(3.0),
    ],
}
ERRORS = {
    "strings cast": lambda t: t.cast("a", t.int32),
    "another number of values": lambda t: t.reshape(t.range(6), [4]),
    "not size one": lambda t: t.squeeze(t.zeros([2, 1]), 0),
    "shapes to stack": lambda t: t.stack([t.zeros([2]), t.zeros([3])]),
    "shapes to concat": lambda t: t.concat([t.zeros([2, 2]), t.zeros([2, 3])], 0),
    "parts that differ": lambda t: t.split(t.range(5), 2),
    "outside": lambda t: t.gather([1, 2], [2]),
    "slice outside": lambda t: t.slice(t.range(3), [2], [2]),
    "two dtypes": lambda t: t.add(t.constant(1), t.constant(1.0)),
    "one branch": lambda t: t.where([True], [1]),
    "fractions as whole": lambda t: t.constant(1.5, t.int32),
    "number as string": lambda t: t.constant(1, t.string),
    "rows of two lengths": lambda t: t.constant([[1, 2], [3]]),
    "tensor of another dtype": lambda t: t.convert_to_tensor(t.constant(1), t.float32),
    "not that shape": lambda t: t.ensure_shape(t.zeros([2]), [3]),
    "set another shape": lambda t: t.constant([1, 2]).set_shape([3]),
    "a scalar's rows": lambda t: list(t.constant(1)),
    "no such dtype": lambda t: t.as_dtype("int37"),
    "negative size": lambda t: t.TensorShape([-2]),
}


def flat(values):
    return [x for value in values for x in flat(value)] if isinstance(values, list) else [values]


@pytest.mark.parametrize("name", EQUAL)
def test_results_equal_tensorflow(name):
    ours, theirs = flat(EQUAL[name](tf)), flat(EQUAL[name](tensorflow))
    assert len(ours) == len(theirs)
    for place, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert isinstance(our, tf.Tensor), place
        assert tf.as_dtype(our.dtype).name == their.dtype.name, place
        assert our.shape.as_list() == their.shape.as_list(), place
        np.testing.assert_allclose(
            our.numpy(), their.numpy(), rtol=1e-6
        ) if our.dtype.kind == "f" else (
            np.testing.assert_array_equal(our.numpy(), their.numpy(), strict=True)
        )
        assert type(our.numpy()) is type(their.numpy()), place


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_of_tensorflows_class(name):
    with pytest.raises(Exception) as theirs:
        ERRORS[name](tensorflow)
    kind = type(theirs.value)
    expected = getattr(tf.errors, kind.__name__, kind)
    with pytest.raises(expected):
        ERRORS[name](tf)


@pytest.mark.parametrize("name", sorted(tf.dtypes.BY_NAME))
def test_dtypes_say_what_tensorflows_say(name):
    ours, theirs = getattr(tf, name), getattr(tensorflow, name)
    for fact in [
        "name",
        "size",
        "is_floating",
        "is_integer",
        "is_bool",
        "is_complex",
        "is_unsigned",
        "as_numpy_dtype",
        "as_datatype_enum",
    ]:
        assert getattr(ours, fact) == getattr(theirs, fact), fact
    for limit in ("min", "max"):
        try:
            expected = getattr(theirs, limit)
        except TypeError:
            continue
        if not ours.is_complex:
            assert getattr(ours, limit) == expected
    assert (repr(ours), str(ours)) == (repr(theirs), str(theirs))
    assert tf.as_dtype(theirs) is ours
    assert ours == theirs.as_numpy_dtype
    assert np.dtype(theirs.as_numpy_dtype) == ours
    assert pickle.loads(pickle.dumps(ours)) is ours


@pytest.mark.parametrize(
    "dims",
    [None, [], [3], [None, 2], [2, 3, 4], [-1]],
    ids=["unknown", "scalar", "3", "n2", "234", "-1"],
)
def test_shapes_say_what_tensorflows_say(dims):
    if dims == [-1]:
        dims = [None]
    ours, theirs = tf.TensorShape(dims), tensorflow.TensorShape(dims)
    assert (repr(ours), str(ours)) == (repr(theirs), str(theirs))
    assert (ours.rank, ours.dims and len(ours.dims)) == (
        theirs.rank,
        theirs.dims and len(theirs.dims),
    )
    assert ours.num_elements() == theirs.num_elements()
    assert ours.is_fully_defined() == theirs.is_fully_defined()
    for other in (None, [], [3], [5, 2], [2, None, 4]):
        assert ours.is_compatible_with(other) == theirs.is_compatible_with(other)
        assert repr(ours.concatenate(other)) == repr(theirs.concatenate(other))
        assert (ours == tf.TensorShape(other)) == (theirs == tensorflow.TensorShape(other))
        try:
            merged = repr(theirs.merge_with(other))
        except ValueError:
            with pytest.raises(ValueError, match="not compatible"):
                ours.merge_with(other)
        else:
            assert repr(ours.merge_with(other)) == merged
    assert pickle.loads(pickle.dumps(ours)) == ours


def test_tensors_print_as_tensorflows():
    for value in (b"Record A", 3, 2.5, [1, 2], [[1.5, 2], [3, 4]], ["a", "b"], True, []):
        assert str(tf.constant(value)) == str(tensorflow.constant(value))
        assert repr(tf.constant(value)) == repr(tensorflow.constant(value))


def test_tensors_are_arrays_that_copy_and_pickle():
    made = tf.constant([[1, 2], [3, 4]])
    assert isinstance(made, np.ndarray)
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made), copy.copy(made)):
        assert isinstance(again, tf.Tensor)
        assert again.numpy().tolist() == [[1, 2], [3, 4]]
    assert np.shares_memory(made.numpy(), made)
    assert type(made.numpy()) is np.ndarray
    assert [x.numpy() for x in tf.constant(["a", "b"])] == [b"a", b"b"]


def test_errors_are_also_the_errors_of_python_and_pickle():
    for name, kind in (
        ("NotFoundError", FileNotFoundError),
        ("InvalidArgumentError", ValueError),
        ("DataLossError", ValueError),
        ("AlreadyExistsError", FileExistsError),
        ("UnimplementedError", NotImplementedError),
    ):
        error = getattr(tf.errors, name)(None, None, "what went wrong", file="a.tfrecord", record=3)
        assert isinstance(error, kind)
        assert isinstance(error, tf.errors.OpError)
        assert error.message == "what went wrong"
        assert error.error_code == getattr(tensorflow.errors, name)(None, None, "").error_code
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))


def test_missing_functions_are_named_with_the_nearest_way():
    with pytest.raises(
        AttributeError, match=r"tf\.io\.decode_proto is not part of penstock\.tf\n.*FromString"
    ):
        tf.io.decode_proto  # noqa: B018
    assert not hasattr(tf, "no_such_thing")
