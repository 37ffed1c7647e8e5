"""Hints of penstock.tf, of JAX and of Keras."""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import wave
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases_jax import padding_of_two_processes
from PIL import Image
from steps import Case, Cases, Make, apart, rows

import penstock as ps
import penstock.tf as tf
from penstock.tf.missing import IN_TENSORFLOW, NEAREST, in_numpy, missing


def listed(dataset: Iterable[Any]) -> list[Any]:
    """The elements of a dataset as Python values."""
    return [np.asarray(element).tolist() for element in dataset]


def mapped(values: Any, function: Callable[[Any], Any]) -> list[Any]:
    """The result of a function given to Dataset.map for some values."""
    return listed(tf.data.Dataset.from_tensor_slices(values).map(function))


def elsewhere() -> Case:
    Path("there").mkdir()
    Path("there/a.txt").write_bytes(b"text")

    def copied() -> None:
        Path("a.txt").write_bytes(Path("there/a.txt").read_bytes())
        assert tf.io.read_file("a.txt").numpy() == b"text"

    return Case(lambda: tf.io.read_file("hdfs://there/a.txt"), copied)


# -- alternatives to functions of TensorFlow ------------------------------------------------------


def _sound() -> None:
    file = BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, 8000, 0, "NONE", ""))
        sound.writeframes(np.array([1, 2], "<i2").tobytes())

    def decoded(value: Any) -> Any:  # soundfile.read does the same for more kinds of sound
        with wave.open(BytesIO(value.numpy())) as read:
            return np.frombuffer(read.readframes(2), "<i2")

    assert mapped([file.getvalue()], decoded) == [[1, 2]]


def _threads() -> None:
    dataset = tf.data.Dataset.range(4).map(lambda x: x + 1, num_parallel_calls=tf.data.AUTOTUNE)
    assert listed(dataset) == [1, 2, 3, 4]


def _torch() -> None:
    import torch

    weight = torch.ones(2, requires_grad=True)
    for batch in tf.data.Dataset.from_tensor_slices([[1.0, 2.0]]).batch(1):
        (torch.from_numpy(batch.numpy()) * weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [1, 2]


def _numpy_array() -> None:
    total = np.zeros(2)
    for element in tf.data.Dataset.from_tensor_slices([[1, 2], [3, 4]]):
        total += element
    assert total.tolist() == [4, 6]


def _written(path: str = "a.tfrecord") -> ps.Dataset:
    ps.write({"a": [1, 2, 3, 4]}, path, overwrite=True)
    return ps.open(path)


def _loader() -> None:
    (batch,) = ps.Loader(_written(), 4)
    assert batch["a"].tolist() == [1, 2, 3, 4]


def _two_ranks() -> None:
    data = _written()
    parts = [list(ps.Loader(data, 1, rank=rank, world_size=2)) for rank in (0, 1)]
    assert sorted(batch["a"].item() for part in parts for batch in part) == [1, 2, 3, 4]
    assert [len(part) for part in parts] == [2, 2]


def _fingerprint() -> None:
    assert _written("a.tfrecord").fingerprint == ps.open("a.tfrecord").fingerprint
    ps.write({"a": [1]}, "b.tfrecord")
    assert ps.open("b.tfrecord").fingerprint != ps.open("a.tfrecord").fingerprint


def _ragged_batch() -> None:
    dataset = tf.data.Dataset.from_tensor_slices([1, 2]).map(lambda n: tf.ones([n]))
    (batch,) = dataset.ragged_batch(2)
    assert (batch.values.numpy().tolist(), batch.row_splits.numpy().tolist()) == (
        [1, 1, 1],
        [0, 1, 3],
    )


def _sqlite() -> None:
    with sqlite3.connect(":memory:") as base:
        base.execute("create table t (a integer)")
        base.executemany("insert into t values (?)", [(1,), (2,)])

        def records() -> Iterable[Any]:
            for (value,) in base.execute("select a from t order by a"):
                yield value

        dataset = tf.data.Dataset.from_generator(
            records, output_signature=tf.TensorSpec((), tf.int64)
        )
        assert listed(dataset) == [1, 2]
    base.close()


def _errors() -> None:
    with pytest.raises(tf.errors.NotFoundError):
        tf.io.read_file("none")


def _picture(ending: str) -> bytes:
    file = BytesIO()
    Image.new("RGB", (3, 2), (9, 8, 7)).save(file, ending, lossless=True)
    return file.getvalue()


def _images() -> None:
    def decoded(value: Any) -> Any:
        return np.asarray(Image.open(BytesIO(value.numpy())))

    (pixels,) = mapped([_picture("webp")], decoded)
    assert np.shape(pixels) == (2, 3, 3)
    ps.write({"image": [_picture("webp")]}, "a.parquet")
    (batch,) = ps.Loader(ps.open("a.parquet"), 1, decode={"image": ps.Image()})
    assert batch["image"][0].tolist() == pixels


def _open_and_write() -> None:
    ps.write({"a": [[1, 0, 2]]}, "a.parquet")
    assert rows("a.parquet") == [{"a": [1, 0, 2]}]


def _json() -> None:
    assert mapped([b'{"a": 3}'], lambda x: json.loads(x.numpy())["a"]) == [3]


def _from_string() -> None:
    from google.protobuf.wrappers_pb2 import Int64Value

    assert mapped([b"\x08\x07"], lambda x: Int64Value.FromString(x.numpy()).value) == [7]


def _to_string() -> None:
    from google.protobuf.wrappers_pb2 import Int64Value

    assert mapped([7], lambda x: Int64Value(value=int(x)).SerializeToString()) == [b"\x08\x07"]


def _matching() -> None:
    Path("a.txt").write_text("a")
    assert tf.io.matching_files("*.txt").numpy().tolist() == [b"./a.txt"]


def _linalg() -> None:
    assert np.linalg.det(tf.constant([[2.0, 0.0], [0.0, 3.0]])) == pytest.approx(6)


def _lookup() -> None:
    numbers = {b"cat": 0, b"dog": 1}
    assert mapped(["dog", "cat"], lambda x: numbers[x.numpy()]) == [1, 0]


def _random() -> None:
    assert np.random.default_rng(0).poisson(3.0, 4).shape == (4,)
    assert (tf.random.uniform([4], 1, 2).numpy() >= 1).all()


def _ragged() -> None:
    ragged = tf.ragged.constant([[1, 2], [3]])
    doubled = tf.RaggedTensor.from_row_splits(2 * np.asarray(ragged.values), ragged.row_splits)
    assert doubled.to_list() == [[2, 4], [6]]


def _sparse() -> None:
    sparse = tf.SparseTensor([[0, 1], [1, 0]], [5, 6], [2, 2])
    dense = np.zeros(np.asarray(sparse.dense_shape), int)
    dense[tuple(np.asarray(sparse.indices).T)] = np.asarray(sparse.values)
    assert dense.tolist() == [[0, 5], [6, 0]]


def _strings() -> None:
    assert mapped(["One"], lambda x: x.numpy().lower()) == [b"one"]


def _cube_root() -> None:
    assert float(np.cbrt(tf.constant(8.0))) == 2


def _tensorflow() -> None:
    import tensorflow  # noqa: ICN001 -- tf is penstock's here

    assert float(tensorflow.math.lgamma(tf.constant(3.0).numpy())) == pytest.approx(np.log(2))


def _at_once() -> None:
    assert (tf.constant(1) + 1).numpy() == 2


def _main() -> None:
    def main(arguments: list[str]) -> int:
        return len(arguments)

    assert main(["program"]) == 1


def _argparse() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=8)
    assert parser.parse_args([]).batch_size == 8


def _one_hot() -> None:
    assert mapped([1], lambda x: tf.one_hot(tf.cast(x, tf.int32), 2)[1]) == [1.0]


def _summed() -> None:
    assert np.sum(tf.ones([4])) == 4


def _of_keras() -> None:
    assert tf.keras.Model.save and tf.keras.Model.export and tf.keras.callbacks.TensorBoard


def _fft() -> None:
    assert np.fft.fft(tf.ones([4]))[0] == 4


WAYS: dict[str, tuple[str, Callable[[], None]]] = {
    "tf.GradientTape": ("tf.GradientTape", _torch),
    "tf.RaggedTensor": ("tf.RaggedTensor.numpy_function", _ragged),
    "tf.SparseTensor": ("tf.SparseTensor.consumers", _sparse),
    "tf.Variable": ("tf.Variable", _numpy_array),
    "tf.audio": ("tf.audio.decode_mp3", _sound),
    "tf.config": ("tf.config.get_soft_device_placement", _threads),
    "tf.data": ("tf.data.NumpyIterator", _loader),
    "tf.data.Dataset.fingerprint": ("tf.data.Dataset.fingerprint", _fingerprint),
    "tf.data.Dataset.sparse_batch": ("tf.data.experimental.dense_to_sparse_batch", _ragged_batch),
    "tf.data.experimental": ("tf.data.experimental.RandomDataset", _loader),
    "tf.data.experimental.SqlDataset": ("tf.data.experimental.SqlDataset", _sqlite),
    "tf.data.experimental.service": ("tf.data.experimental.service", _two_ranks),
    "tf.distribute": ("tf.distribute.ParameterServerStrategy", _two_ranks),
    "tf.errors": ("tf.errors.NOT_FOUND", _errors),
    "tf.experimental": ("tf.experimental", _summed),
    "tf.feature_column": ("tf.feature_column", _one_hot),
    "tf.image": ("tf.image.decode_webp", _images),
    "tf.io": ("tf.io.write_graph", _open_and_write),
    "tf.io.decode_json_example": ("tf.io.decode_json_example", _json),
    "tf.io.decode_proto": ("tf.io.decode_proto", _from_string),
    "tf.io.decode_webp": ("tf.io.decode_webp", _images),
    "tf.io.encode_proto": ("tf.io.encode_proto", _to_string),
    "tf.io.match_filenames_once": ("tf.io.match_filenames_once", _matching),
    "tf.linalg": ("tf.linalg.expm", _linalg),
    "tf.lookup": ("tf.compat.v1.lookup.index_table", _lookup),
    "tf.nn": ("tf.nn.conv3d", _torch),
    "tf.ragged": ("tf.ragged.cross", _ragged),
    "tf.random": ("tf.random.poisson", _random),
    "tf.sparse": ("tf.sparse.concat", _sparse),
    "tf.strings": ("tf.strings.unicode_script", _strings),
    "tf.Session": ("tf.compat.v1.Session", _at_once),
    "tf.app": ("tf.compat.v1.app", _main),
    "tf.flags": ("tf.compat.v1.flags", _argparse),
    "tf.placeholder": ("tf.compat.v1.placeholder", _at_once),
    "tf.saved_model": ("tf.saved_model", _of_keras),
    "tf.summary": ("tf.summary", _of_keras),
    "tf.signal": ("tf.signal.mdct", _fft),
    "tf.train": ("tf.train.Checkpoint", _torch),
}
"""For each missing symbol in NEAREST, a case that follows the advised way."""
assert WAYS.keys() == NEAREST.keys(), "each way in NEAREST needs a case"


def _way(hint: str, symbol: str, advised: Callable[[], None]) -> Make:
    def reached() -> None:
        found: Any = tf
        for part in symbol.split(".")[1:]:
            found = getattr(found, part)

    def make() -> Case:
        shown = missing(symbol).hint  # a name that is similar may come first
        assert shown is not None and shown.endswith(hint)
        return Case(reached, advised, shown)

    make.__name__ = symbol
    return make


# -- JAX and Keras, in separate processes ------------------------------------------------------


def _said(program: str, keras: str = "jax") -> str:
    """The last line that a program prints."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": keras, "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def _both(program: str) -> Case:
    """A program that prints, as JSON, the refused call's error and the result of the advice."""
    ps.write({"a": [[1], [2, 3]], "y": [0.0, 1.0]}, "a.parquet")
    told = json.loads(_said(program, "numpy"))

    def refused() -> None:
        raise ps.SchemaError("in another process", hint=told["hint"])

    def advised() -> None:
        assert told["gives"] == [[1, 0], [2, 3]]

    return Case(refused, advised)


def lists_for_keras() -> Case:
    return _both("""
import json
import penstock as ps
def batch(**options):
    loader = ps.Loader(ps.open("a.parquet"), 2, **options)
    return loader.keras(x="a", y="y")[0]
try:
    batch()
except ps.SchemaError as error:
    print(json.dumps({"hint": error.hint, "gives": batch(ragged="pad")[0].tolist()}))
""")


IN_JAX = """
import json
import jax
import penstock as ps
mesh = jax.make_mesh((1,), ("data",))
sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
def batches(**options):
    loader = ps.Loader(ps.open("a.parquet"), 2, columns=["a"], **options)
    return loader.jax(sharding=sharding)
try:
    REFUSED
except ps.SchemaError as error:
    (batch,) = batches(pad_to={"a": 2})
    print(json.dumps({"hint": error.hint, "gives": batch["a"].tolist()}))
"""
PADDED = "pad_to={'a': length} of Loader, which gives every batch the same shape"


def lists_in_global_arrays() -> Case:
    return _both(IN_JAX.replace("REFUSED", "next(iter(batches()))"))._replace(hint=PADDED)


def folders_of_tensorflow() -> Case:
    Path("saved").mkdir()
    Path("saved/snapshot.metadata").write_bytes(b"")

    def advised() -> None:
        import tensorflow  # noqa: ICN001 -- tf is penstock's here

        tensorflow.data.Dataset.range(3).save("theirs")
        assert [int(n) for n in tensorflow.data.Dataset.load("theirs")] == [0, 1, 2]

    return Case(lambda: list(tf.data.Dataset.load("saved")), advised)


def a_function_without_a_result() -> Case:
    def mapped(function: Callable[[Any], Any]) -> list[Any]:
        return listed(tf.data.Dataset.from_tensor_slices([1, 2]).map(function))

    def advised() -> None:
        assert mapped(lambda x: x + 1) == [2, 3]

    return Case(lambda: mapped(lambda x: None), advised)


WITHOUT_ML_DTYPES = """
import sys
from importlib.util import find_spec

import penstock.tf as tf

def fails():
    sys.modules["ml_dtypes"] = None
    tf.bfloat16.as_numpy_dtype

def advised():
    assert find_spec("ml_dtypes") is not None
    assert tf.cast(tf.constant([1.5]), tf.bfloat16).numpy()[0] == 1.5
"""

LAYERS = """
import importlib.util, sys

import penstock.tf as tf

find, sys.modules["tensorflow"] = importlib.util.find_spec, None
importlib.util.find_spec = lambda name, *more: None if name == "tensorflow" else find(name, *more)

def fails():
    tf.keras.layers.StringLookup

def advised():
    values = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2])
    table = tf.lookup.StaticHashTable(values, 0)
    numbers = tf.data.Dataset.from_tensor_slices(["b", "c"]).map(table.lookup)
    assert list(numbers.as_numpy_iterator()) == [2, 0]
"""

WITHOUT_KERAS = """
import os, sys

import numpy as np

import penstock.tf as tf

def fails():
    sys.modules["keras"] = None
    tf.keras

def advised():
    os.environ.pop("KERAS_BACKEND", None)
    os.environ["KERAS_HOME"] = os.getcwd()
    sys.modules["tensorflow"] = None  # not installed, so Keras runs on another package that is
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensor_slices((np.ones((4, 2), "f4"), np.ones((4, 1), "f4"))).batch(2)
    assert len(model.fit(data, verbose=0).history["loss"]) == 1
    assert os.environ["KERAS_BACKEND"] in {"jax", "torch"}
"""


CASES: Cases = {
    "'only TensorFlow reads folders that TensorFlow saved'": folders_of_tensorflow,
    "'pip install keras, and jax or torch to run it on'": lambda: apart(WITHOUT_KERAS),
    "'pip install ml_dtypes'": lambda: apart(WITHOUT_ML_DTYPES),
    "'copy the files to this machine first'": (elsewhere),
    "_hint(symbol)": (
        *(_way(NEAREST[name], *way) for name, way in WAYS.items()),
        _way(in_numpy("cbrt"), "tf.math.cbrt", _cube_root),
        _way(in_numpy("cbrt"), "tf.compat.v1.cbrt", _cube_root),
        _way(IN_TENSORFLOW, "tf.math.lgamma", _tensorflow),
    ),
    "_fixed(name)": (lists_in_global_arrays, padding_of_two_processes),
    "'tf.lookup tables and tf.strings in a function given to Dataset.map: see \"Functions of Keras that need TensorFlow\" in docs/guide/tensorflow.md'": lambda: (
        apart(LAYERS)
    ),
    "'ragged=\"pad\"'": lists_for_keras,
    "'return its result'": a_function_without_a_result,
}
