"""Parsing, compared with TensorFlow case by case: features that are refused, inputs of all kinds, defaults,
messages."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from beside_tensorflow import EXAMPLE, message, theirs
from parse_programs import answer

import penstock.tf as ours

OURS = ours


def both(program: Any) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return answer(lambda: program(OURS)), answer(lambda: program(theirs))


def parsed(feature: Any, key: str = "a", payload: bytes = EXAMPLE) -> Any:
    return lambda tf: tf.io.parse_example([payload], {key: feature(tf.io, tf)})


REFUSED: dict[str, Any] = {
    "no features": lambda tf: tf.io.parse_example([EXAMPLE], {}),
    "None for features": lambda tf: tf.io.parse_example([EXAMPLE], None),
    "no features of one record": lambda tf: tf.io.parse_single_example(EXAMPLE, {}),
    "None for those of one record": lambda tf: tf.io.parse_single_example(EXAMPLE, None),
    "no features of sequences": lambda tf: tf.io.parse_sequence_example([b""]),
    "no features of a sequence": lambda tf: tf.io.parse_single_sequence_example(b"", {}, {}),
    "a feature that is none": parsed(lambda io, tf: tf.int64),
    "int32": parsed(lambda io, tf: io.FixedLenFeature([], tf.int32)),
    "float64 of any length": parsed(lambda io, tf: io.VarLenFeature(tf.float64)),
    "int32 in rows": parsed(lambda io, tf: io.FixedLenSequenceFeature([], tf.int32, True)),
    "int32, sparse": parsed(lambda io, tf: io.SparseFeature("i", "v", tf.int32, 3)),
    "int32, ragged": parsed(lambda io, tf: io.RaggedFeature(tf.int32)),
    "no dtype": parsed(lambda io, tf: io.VarLenFeature(None)),
    "no shape": parsed(lambda io, tf: io.FixedLenFeature(None, tf.int64)),
    "a shape that is not known": parsed(lambda io, tf: io.FixedLenFeature([None], tf.int64)),
    "a size that is not known": parsed(lambda io, tf: io.FixedLenFeature([2, None], tf.int64)),
    "a size below zero": parsed(lambda io, tf: io.FixedLenFeature([-2], tf.int64)),
    "a size of -1": parsed(lambda io, tf: io.FixedLenFeature([-1], tf.int64)),
    "a default too small": parsed(lambda io, tf: io.FixedLenFeature([2], tf.int64, 1)),
    "a default too large": parsed(lambda io, tf: io.FixedLenFeature([2], tf.int64, [1, 2, 3])),
    "a fraction for int64": parsed(lambda io, tf: io.FixedLenFeature([], tf.int64, 1.5)),
    "text for int64": parsed(lambda io, tf: io.FixedLenFeature([], tf.int64, "a")),
    "a number for a string": parsed(lambda io, tf: io.FixedLenFeature([], tf.string, 1)),
    "a default beyond int64": parsed(lambda io, tf: io.FixedLenFeature([], tf.int64, 2**63)),
    "a default of none": parsed(lambda io, tf: io.FixedLenFeature([0], tf.int64, []), "zz"),
    "a tensor of another type": parsed(
        lambda io, tf: io.FixedLenFeature([2], tf.int64, tf.constant([1, 2]))
    ),
    "rows that may not lack": parsed(lambda io, tf: io.FixedLenSequenceFeature([], tf.int64)),
    "rows of an int shape": parsed(lambda io, tf: io.FixedLenSequenceFeature(2, tf.int64, True)),
    "rows of no shape": parsed(lambda io, tf: io.FixedLenSequenceFeature(None, tf.int64, True)),
    "rows of unknown size": parsed(
        lambda io, tf: io.FixedLenSequenceFeature([None], tf.int64, True)
    ),
    "two values to fill up": parsed(
        lambda io, tf: io.FixedLenSequenceFeature([], tf.int64, True, [5, 6])
    ),
    "fewer sizes than indices": parsed(
        lambda io, tf: io.SparseFeature(["i", "j"], "v", tf.int64, [3])
    ),
    "a size for a list": parsed(lambda io, tf: io.SparseFeature(["i"], "v", tf.int64, 3)),
    "a list for a size": parsed(lambda io, tf: io.SparseFeature("i", "v", tf.int64, [3])),
    "a fraction for a size": parsed(lambda io, tf: io.SparseFeature("i", "v", tf.int64, 3.5)),
    "no index key": parsed(lambda io, tf: io.SparseFeature("", "v", tf.int64, 3)),
    "no value key": parsed(lambda io, tf: io.SparseFeature("i", "", tf.int64, 3)),
    "a key that is a number": lambda tf: tf.io.parse_example(
        [EXAMPLE], {1: tf.io.VarLenFeature(tf.int64)}
    ),
    "a value key that is a number": parsed(lambda io, tf: io.RaggedFeature(tf.int64, 3)),
    "an empty value key": parsed(lambda io, tf: io.RaggedFeature(tf.int64, "")),
    "splits of floats": parsed(lambda io, tf: io.RaggedFeature(tf.int64, None, [], tf.float32)),
    "partitions that are none": parsed(lambda io, tf: io.RaggedFeature(tf.int64, None, ["n"])),
    "a partition alone": parsed(
        lambda io, tf: io.RaggedFeature(tf.int64, None, io.RaggedFeature.RowLengths("n")._asdict())
    ),
    "validate=1": parsed(lambda io, tf: io.RaggedFeature(tf.int64, validate=1)),
    "an int for a string": lambda tf: tf.io.parse_example(
        [1], {"a": tf.io.VarLenFeature(tf.int64)}
    ),
    "a matrix": lambda tf: tf.io.parse_example([[EXAMPLE]], {"a": tf.io.VarLenFeature(tf.int64)}),
    "a batch for one": lambda tf: tf.io.parse_single_example(
        [b""], {"a": tf.io.VarLenFeature(tf.int64)}
    ),
    "a batch for one sequence": lambda tf: tf.io.parse_single_sequence_example(
        [b""], {"a": tf.io.VarLenFeature(tf.int64)}
    ),
    "a list for rows with a default": lambda tf: tf.io.parse_sequence_example(
        [b""], None, {"a": tf.io.FixedLenSequenceFeature([], tf.int64, True, 5)}
    ),
    "sparse context": lambda tf: tf.io.parse_sequence_example(
        [b""], {"a": tf.io.SparseFeature("i", "v", tf.int64, 3)}
    ),
    "two names for one record": lambda tf: tf.io.parse_example(
        [EXAMPLE], {"a": tf.io.VarLenFeature(tf.int64)}, ["x", "y"]
    ),
    "two names for one sequence": lambda tf: tf.io.parse_sequence_example(
        [b""], {"a": tf.io.VarLenFeature(tf.int64)}, None, ["x", "y"]
    ),
    "no record for a context": lambda tf: tf.io.parse_sequence_example(
        tf.constant([], tf.string), {"a": tf.io.FixedLenFeature([2], tf.int64)}
    ),
}
CONFLICTS: dict[str, Any] = {
    "sparse of two types": lambda io, tf: {
        "s": io.SparseFeature("i", "v", tf.float32, 3),
        "i": io.VarLenFeature(tf.string),
    },
    "dense and sparse": lambda io, tf: {
        "s": io.SparseFeature("i", "v", tf.float32, 3),
        "i": io.FixedLenFeature([], tf.int64),
    },
    "dense and ragged": lambda io, tf: {
        "r": io.RaggedFeature(tf.int64, "i"),
        "i": io.FixedLenFeature([], tf.int64),
    },
    "ragged of two types": lambda io, tf: {
        "r": io.RaggedFeature(tf.int64, "i"),
        "q": io.RaggedFeature(tf.float32, "i"),
    },
    "ragged of two kinds of splits": lambda io, tf: {
        "r": io.RaggedFeature(tf.int64, "i"),
        "q": io.RaggedFeature(tf.int64, "i", row_splits_dtype=tf.int64),
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_tensorflow_refuses_is_refused_with_the_same_class(name: str) -> None:
    found, expected = both(REFUSED[name])
    assert found[0] == expected[0], (found, expected)


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_key_that_is_read_in_two_ways_is_refused(name: str) -> None:
    features = CONFLICTS[name]
    found, expected = both(lambda tf: tf.io.parse_example([EXAMPLE], features(tf.io, tf)))
    assert found[0] == expected[0] == "ValueError"
    assert expected[1].partition(";")[0].strip("('") in found[1]


READ: dict[str, Any] = {
    "an int shape": parsed(lambda io, tf: io.FixedLenFeature(2, tf.int64)),
    "names of dtypes": parsed(lambda io, tf: io.VarLenFeature("int64")),
    "numpy's dtypes": parsed(lambda io, tf: io.VarLenFeature(np.int64)),
    "a nested default": parsed(lambda io, tf: io.FixedLenFeature([2], tf.int64, [[1], [2]]), "zz"),
    "a default of ints for floats": parsed(
        lambda io, tf: io.FixedLenFeature([], tf.float32, 1), "zz"
    ),
    "a default of a numpy fraction": parsed(
        lambda io, tf: io.FixedLenFeature([], tf.int64, np.float64(1.5)), "zz"
    ),
    "a default that is an array": parsed(
        lambda io, tf: io.FixedLenFeature([2], tf.float32, np.array([1, 2])), "zz"
    ),
    "a default that is a tensor": parsed(
        lambda io, tf: io.FixedLenFeature([2], tf.int64, tf.constant([1, 2], tf.int64)), "zz"
    ),
    "a default that is true": parsed(lambda io, tf: io.FixedLenFeature([], tf.int64, True), "zz"),
    "a default that is text": parsed(lambda io, tf: io.FixedLenFeature([], tf.string, "é"), "zz"),
    "one value in a list to fill up": parsed(
        lambda io, tf: io.FixedLenSequenceFeature([], tf.int64, True, [5]), "zz"
    ),
    "an empty list, not the default": parsed(
        lambda io, tf: io.FixedLenFeature([0], tf.int64), "none"
    ),
    "numpy's strings": lambda tf: tf.io.parse_example(
        np.array([EXAMPLE], object), {"a": tf.io.VarLenFeature(tf.int64)}
    ),
    "text": lambda tf: tf.io.parse_example("", {"a": tf.io.VarLenFeature(tf.int64)}),
    "texts": lambda tf: tf.io.parse_example(["", ""], {"a": tf.io.VarLenFeature(tf.int64)}),
    "a batch of none": lambda tf: tf.io.parse_example(
        tf.constant([], tf.string),
        {
            "a": tf.io.FixedLenFeature([2], tf.int64),
            "b": tf.io.VarLenFeature(tf.string),
            "c": tf.io.FixedLenSequenceFeature([2], tf.int64, True),
            "d": tf.io.RaggedFeature(tf.int64),
            "e": tf.io.SparseFeature("i", "v", tf.float32, 3),
            "f": tf.io.FixedLenFeature([], tf.string),
        },
    ),
    "sequences of none": lambda tf: tf.io.parse_sequence_example(
        tf.constant([], tf.string),
        {"a": tf.io.VarLenFeature(tf.int64), "d": tf.io.FixedLenFeature([1], tf.int64, [1])},
        {"b": tf.io.FixedLenSequenceFeature([2], tf.int64), "v": tf.io.VarLenFeature(tf.string)},
    ),
    "keys that are bytes": lambda tf: {
        key.decode(): tensor
        for key, tensor in tf.io.parse_example(
            [EXAMPLE], {b"a": tf.io.VarLenFeature(tf.int64)}
        ).items()
    },
    "the order of keys": lambda tf: tf.io.parse_example(
        [EXAMPLE],
        {
            "z": tf.io.VarLenFeature(tf.int64),
            "m": tf.io.FixedLenFeature([], tf.int64, 0),
            "a": tf.io.VarLenFeature(tf.int64),
            "c": tf.io.RaggedFeature(tf.float32, "x"),
            "r": tf.io.RaggedFeature(tf.float32),
            "s": tf.io.SparseFeature("i", "v", tf.int64, 3),
        },
    ),
    "a name": lambda tf: tf.io.parse_single_example(
        EXAMPLE, {"a": tf.io.VarLenFeature(tf.int64)}, "x"
    ),
    "one sequence in the batch form": lambda tf: tf.io.parse_sequence_example(
        b"",
        {"a": tf.io.VarLenFeature(tf.int64)},
        {"b": tf.io.FixedLenSequenceFeature([], tf.int64, True)},
    ),
}


@pytest.mark.parametrize("name", READ)
def test_arguments_that_tensorflow_accepts_give_the_same_results(name: str) -> None:
    found, expected = both(READ[name])
    assert not isinstance(expected[0], str), expected
    assert found == expected


def test_messages_name_the_record_the_key_and_both_types() -> None:
    io = OURS.io
    wrong = {"a": io.FixedLenFeature([], ours.float32)}
    assert message(lambda: io.parse_example([EXAMPLE], wrong, ["r7"])) == (
        "Name: r7, Key: a, Index: 0.  Data types don't match. Data type: int64 but expected type: float"
    )
    absent = {"zz": io.FixedLenFeature([], ours.string)}
    assert message(lambda: io.parse_single_example(EXAMPLE, absent)) == (
        "Feature: zz (data type: string) is required but could not be found."
    )
    assert (
        "Index: 1.  Number of int64 values != expected.  Values size: 0 but output shape: [2]"
        in (
            message(
                lambda: io.parse_example(
                    [EXAMPLE, bytes.fromhex("0a090a070a016112021a00")],
                    {"a": io.FixedLenFeature([2], ours.int64, [0, 0])},
                )
            )
        )
    )
    garbage = message(lambda: io.parse_example([b"\xffabc"], wrong))
    assert garbage == "Could not parse example input, value: '\\xffabc'"


def test_unpacked_floats_beyond_a_shape_are_an_error_but_tensorflow_crashes() -> None:
    payload = bytes.fromhex("0a150a130a03782079120c120a0d010000000d459c63c3")
    feature = {"x y": OURS.io.FixedLenFeature([0], ours.float32)}
    assert "Values size: 2" in message(lambda: OURS.io.parse_example([payload], feature))
    assert "Can't parse" in message(lambda: OURS.io.parse_single_example(payload, feature))


# Features are named tuples


def test_features_are_equal_print_and_pickle_as_tensorflows() -> None:
    def made(tf: Any) -> list[Any]:
        io, ragged = tf.io, tf.io.RaggedFeature
        parts = [ragged.RowLengths("x"), ragged.UniformRowLength(2), ragged.ValueRowIds(key="y")]
        return [
            io.VarLenFeature(tf.int64),
            io.FixedLenFeature([2], tf.float32),
            io.FixedLenFeature(shape=(), dtype=tf.string, default_value="a"),
            io.FixedLenSequenceFeature([2], tf.int64, allow_missing=True),
            io.RaggedFeature(tf.int64, value_key="v", partitions=parts, validate=True),
            io.SparseFeature("i", "v", tf.int64, 3, already_sorted=True),
        ]

    for mine, other in zip(made(OURS), made(theirs), strict=True):
        assert repr(mine) == repr(other)
        assert mine._fields == other._fields
        assert mine == type(mine)(*mine) and mine._replace() == mine
        assert pickle.loads(pickle.dumps(mine)) == mine
    assert made(OURS)[4].partitions[1].length == 2
