"""Other names that programs use: `tf.compat.v1`, `tf.config`, `tf.debugging`, and names that are missing."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import operator
import pickle
import sqlite3
from typing import Any

import numpy as np
import pytest
import tensorflow  # noqa: ICN001 -- tf is penstock's here

import penstock as ps
import penstock.tf as tf
from penstock.tf.keras_functions import FUNCTIONS
from penstock.tf.missing import NEAREST, nearest


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [[5, 9], [30, 40], [13, 17], [1, 1], [7, 50]])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_tensorflow_1_resized_otherwise(dtype: Any, size: list[int], corners: bool) -> None:
    images = (np.random.default_rng(0).random((2, 13, 17, 3)) * 255).astype(dtype)
    for method in (0, 1):
        mine, theirs = (
            t.compat.v1.image.resize(images, size, method, corners) for t in (tf, tensorflow)
        )
        assert tf.as_dtype(mine.dtype).name == theirs.dtype.name
        np.testing.assert_array_equal(mine, theirs)


def test_names_of_tensorflow_1_mean_what_they_meant(tmp_path: Any) -> None:
    v1 = tf.compat.v1
    path = str(tmp_path / "x.tfrecord")
    with v1.python_io.TFRecordWriter(path) as writer:
        example = tf.train.Example()
        example.features.feature["a"].int64_list.value.append(3)
        writer.write(example.SerializeToString())
    assert v1.gfile.Exists(path)
    assert v1.gfile.Glob(str(tmp_path / "*")) == [path]
    (record,) = v1.data.TFRecordDataset(path)
    parsed = v1.parse_single_example(record, {"a": v1.FixedLenFeature([], tf.int64)})
    assert parsed["a"].numpy() == 3
    assert v1.data.make_one_shot_iterator(v1.data.TFRecordDataset(path)).get_next() == record
    assert len(list(v1.io.tf_record_iterator(path))) == 1
    assert v1.to_float([1]).dtype == tf.float32
    v1.enable_eager_execution()
    v1.logging.set_verbosity(v1.logging.ERROR)


@pytest.mark.parametrize(
    "symbol",
    [
        "tf.compat.v1.Session",
        "tf.compat.v1.image.ssim_multiscale",
        "tf.compat.v1.disable_v2_behavior",
        "tf.config.get_soft_device_placement",
        "tf.debugging.assert_shapes",
        "tf.math.lgamma",
        "tf.ragged.cross",
        "tf.random.stateless_categorical",
        "tf.sparse.cross",
        "tf.strings.unicode_script",
    ],
)
def test_a_missing_name_is_named(symbol: str) -> None:
    *spaces, name = symbol.split(".")[1:]
    found: Any = tf
    for space in spaces:
        found = getattr(found, space)
    with pytest.raises(AttributeError, match=rf"{symbol.replace('.', '[.]')} is not part of pen"):
        getattr(found, name)


def test_functions_that_take_tensors_of_keras_have_one_object_each_and_are_pickled() -> None:
    for space in (tf, tf.math, tf.nn, tf.linalg):
        for name in (FUNCTIONS.keys() - {"resize"}) & set(vars(space)):
            found = getattr(space, name)
            assert pickle.loads(pickle.dumps(found)) is found
            assert found is getattr(tf, name, found) or name == "l2_normalize"
    assert pickle.loads(pickle.dumps(tf.image.resize)) is tf.image.resize
    assert not hasattr(tf.image.transpose, "__wrapped__")  # another function than tf.transpose
    assert tf.dtypes.cast is tf.cast


MISPLACED = {
    "tf.reduce_std": "tf.math.reduce_std",
    "tf.log": "tf.math.log",
    "tf.decode_jpeg": "tf.io.decode_jpeg",
    "tf.nn.reduce_mean": "tf.reduce_mean",
    "tf.data.TFRecordDatset": "tf.data.TFRecordDataset, if that is meant; else ps.open and ps.Loader",
    "tf.math.acosh": "numpy.acosh, which takes tensors of penstock.tf",
    "tf.foo": "TensorFlow itself, which takes tensors of penstock.tf as arrays",
}


@pytest.mark.parametrize("symbol", MISPLACED)
def test_a_misspelt_or_misplaced_name_suggests_the_nearest(symbol: str) -> None:
    with pytest.raises(AttributeError) as caught:
        operator.attrgetter(symbol.removeprefix("tf."))(tf)
    assert str(caught.value).endswith(f"\n  try: {MISPLACED[symbol]}")


def test_a_misspelt_verb_suggests_the_nearest() -> None:
    with pytest.raises(AttributeError, match=r"try: tf\.data\.Dataset\.shuffle"):
        tf.data.Dataset.range(3).suffle(3)


CHECKS = {
    "equal": lambda t: t.debugging.assert_equal(t.constant(1), 1),
    "not equal": lambda t: t.debugging.assert_equal(t.constant([1, 2]), [1, 3], message="so"),
    "greater": lambda t: t.debugging.assert_greater([1.0], [2.0]),
    "not below": lambda t: t.debugging.assert_greater_equal([1.0], [1.0]),
    "less": lambda t: t.debugging.assert_less([1], [2]),
    "not above": lambda t: t.debugging.assert_less_equal([3], [2]),
    "positive": lambda t: t.debugging.assert_positive([0]),
    "not negative": lambda t: t.debugging.assert_non_negative([0]),
    "rank": lambda t: t.debugging.assert_rank([0], 2),
    "type": lambda t: t.debugging.assert_type(t.constant(0), t.int64),
    "assert": lambda t: t.debugging.Assert(False, ["why"]),
    "numbers": lambda t: t.debugging.check_numerics([1.0, float("nan")], "here"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_checks_refuse_what_tensorflow_refuses(name: str) -> None:
    def outcome(t: Any) -> str | None:
        try:
            CHECKS[name](t)
        except (ValueError, TypeError, t.errors.OpError) as error:
            return type(error).__name__
        return None

    assert outcome(tf) == outcome(tensorflow)


def test_programs_that_look_for_accelerators_find_none() -> None:
    assert tf.config.list_physical_devices("GPU") == []
    assert tf.config.experimental.list_physical_devices("TPU") == []
    assert [device.device_type for device in tf.config.list_physical_devices()] == ["CPU"]
    assert tf.__version__.startswith("2.")


def test_values_are_printed_as_tensorflow_prints_them(capfd: pytest.CaptureFixture[str]) -> None:
    def printed(t: Any) -> str:
        t.print("a", t.constant(1), t.constant([1, 2]), 2.5, t.range(9), t.constant("s"), sep="|")
        t.print(t.range(9), summarize=-1)
        t.print(t.constant("alone"))
        t.print("plain")
        return capfd.readouterr().err

    assert printed(tf) == printed(tensorflow)


GROUPS = {
    "windows": lambda d: d.group_by_window(lambda x: x % 3, lambda k, w: w.batch(2), window_size=2),
    "sizes": lambda d: d.group_by_window(
        lambda x: x % 2, lambda k, w: w.batch(9), window_size_func=lambda k: k + 1
    ),
    "keys": lambda d: d.group_by_window(
        lambda x: x % 2, lambda k, w: w.map(lambda x: (k, x)).take(2), window_size=3
    ),
}


@pytest.mark.parametrize("name", GROUPS)
def test_windows_of_a_key_are_tensorflows(name: str) -> None:
    def groups(t: Any) -> list[str]:
        made = GROUPS[name](t.data.Dataset.range(11))
        return [str(made.element_spec), *map(str, made.as_numpy_iterator())]

    assert groups(tf) == groups(tensorflow)


def test_a_group_needs_one_size() -> None:
    with pytest.raises(ValueError, match="window_size"):
        tf.data.Dataset.range(3).group_by_window(lambda x: x, lambda k, w: w)


def test_gathering_slicing_and_ranges_match_tensorflow() -> None:
    def found(t: Any) -> list[Any]:
        cube = t.reshape(t.range(24), [2, 3, 4])
        return [
            t.gather_nd(cube, [[0, 1], [1, 2]]),
            t.gather_nd(cube, [[[1, 2, 3]], [[0, 0, 0]]]),
            t.gather_nd(cube, t.where(cube > 20)),
            t.gather_nd(cube, t.zeros([0, 2], t.int64)),
            t.strided_slice(cube, [0, 1], [2, 3]),
            t.strided_slice(cube, [1, -1], [0, -4], [-1, -1]),
            t.strided_slice(cube, [1, 0, 0], [2, 2, 2], begin_mask=2, shrink_axis_mask=1),
            t.range(5, dtype=t.float32),
            t.range(t.constant(3, t.int64)),
            t.range(0, 1, 0.25),
            t.range(t.constant(0, t.int64)),
            t.range(6, 0, -2),
            *t.map_fn(
                lambda x: (x[0] + x[1], x[0]), (t.range(3), t.range(3)), dtype=(t.int32,) * 2
            ),
        ]

    for mine, theirs in zip(found(tf), found(tensorflow), strict=True):
        assert mine.dtype == theirs.dtype.as_numpy_dtype
        np.testing.assert_array_equal(mine, theirs.numpy())


@pytest.mark.parametrize("program", [lambda t: t.gather_nd([1], [[3]]), lambda t: t.range(3, 0)])
def test_impossible_indices_and_ranges_are_refused(program: Any) -> None:
    for t in (tf, tensorflow):
        with pytest.raises(t.errors.InvalidArgumentError):
            program(t)


@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_dataset_is_written_as_records(compression: str | None, tmp_path: Any) -> None:
    path = str(tmp_path / "written")
    records = [b"a", b"", b"ccc"]
    dataset = tf.data.Dataset.from_tensor_slices(records)
    tf.data.experimental.TFRecordWriter(path, compression).write(dataset)
    read = tensorflow.data.TFRecordDataset(path, compression)
    assert [record.numpy() for record in read] == records
    with pytest.raises(TypeError, match="scalar strings"):
        tf.data.experimental.TFRecordWriter(path).write(tf.data.Dataset.range(1))


def _by_function(function: Any) -> Any:
    """The advised way: pass a function of bytes to Dataset.map."""
    return next(iter(tf.data.Dataset.from_tensor_slices([b"[1]"]).map(function)))


def _loader(path: str, **how: Any) -> Any:
    return list(ps.Loader(ps.open(path), batch_size=2, **how))


def _written(path: str) -> None:
    ps.write({"record": [b"one", b"two"]}, path, payload="raw", overwrite=True)


def _sql() -> Any:
    rows = sqlite3.connect(":memory:").execute("select 7")
    return next(iter(tf.data.Dataset.from_generator(lambda: (r[0] for r in rows), tf.int32, [])))


WAYS: dict[str, Any] = {
    "soundfile in a function given to Dataset.map": lambda p: _by_function(lambda x: x),
    "no setting: threads already use all cores": lambda p: None,
    "torch, JAX or keras: penstock prepares data": lambda p: np.asarray(tf.constant([1.0])),
    "its values and row_splits, which are arrays": lambda p: np.diff(
        tf.ragged.constant([[1], []]).row_splits
    ),
    "its indices, values and dense_shape, which are arrays": lambda p: np.asarray(
        tf.sparse.from_dense([0, 1]).indices
    ),
    "keras.Variable, or a NumPy array: penstock.tf has no training loops": lambda p: (
        tf.constant([1]) + np.array([1], np.int32)
    ),
    "fit of Keras, jax.grad or torch's autograd: penstock.tf has no training loops": lambda p: (
        tf.keras.Model.fit
    ),
    "numpy, which takes tensors of penstock.tf, for tf.experimental.numpy": lambda p: np.sum(
        tf.ones([4])
    ),
    "tf.one_hot, tf.lookup and tf.cast in a function given to Dataset.map": lambda p: _by_function(
        lambda x: tf.one_hot(tf.cast(tf.strings.length(x), tf.int32), 4)
    ),
    "model.save or model.export of Keras": lambda p: (tf.keras.Model.save, tf.keras.Model.export),
    "keras.callbacks.TensorBoard, or torch.utils.tensorboard": lambda p: (
        tf.keras.callbacks.TensorBoard
    ),
    "ps.open and ps.Loader": _loader,
    "ps.open(...).fingerprint": lambda p: ps.open(p).fingerprint,
    "Dataset.ragged_batch": lambda p: next(iter(tf.data.Dataset.range(2).ragged_batch(2))),
    "sqlite3, then Dataset.from_generator": lambda p: _sql(),
    "ps.Loader(rank=..., world_size=...), which needs no service": lambda p: _loader(
        p, rank=0, world_size=1
    ),
    "ps.Loader(rank=..., world_size=...)": lambda p: _loader(p, rank=0, world_size=1),
    "the classes of tf.errors, such as tf.errors.NotFoundError": lambda p: tf.errors.NotFoundError,
    "ps.Image in ps.Loader, or pillow in a function given to Dataset.map": lambda p: ps.Image,
    "ps.open and ps.write": lambda p: ps.open(p).count(),
    "json in a function given to Dataset.map": lambda p: _by_function(
        lambda x: json.loads(x.numpy())
    ),
    "FromString of the message's class, in a function given to Dataset.map": lambda p: (
        tf.train.Example.FromString(b"")
    ),
    "SerializeToString of a message, in a function given to Dataset.map": lambda p: (
        tf.train.Example().SerializeToString()
    ),
    "tf.io.matching_files": tf.io.matching_files,
    "numpy.linalg, which takes tensors of penstock.tf": lambda p: np.linalg.qr(tf.ones([2, 2])),
    "numpy.fft, which takes tensors of penstock.tf": lambda p: np.fft.fft(tf.ones([4])),
    "a dict, in a function given to Dataset.map": lambda p: _by_function(
        lambda x: {b"[1]": 1}[x.numpy()]
    ),
    "no session: values are computed immediately": lambda p: tf.constant(1).numpy(),
    "argparse": lambda p: argparse.ArgumentParser(),
    "a call of main()": lambda p: None,
    "numpy.random, or tf.random.uniform": lambda p: tf.random.uniform([1]),
    "the values and row_splits of a ragged tensor, which are arrays": lambda p: np.asarray(
        tf.ragged.constant([[1]]).values
    ),
    "the indices and values of a sparse tensor, which are arrays": lambda p: np.asarray(
        tf.sparse.from_dense([1]).values
    ),
    "the methods of bytes in a function given to Dataset.map: value.numpy()": lambda p: (
        _by_function(lambda x: x.numpy().title())
    ),
}


def test_every_way_that_an_error_names_is_executed() -> None:
    assert set(NEAREST.values()) == WAYS.keys()


@pytest.mark.parametrize("way", WAYS)
def test_a_way_that_an_error_names_exists(way: str, tmp_path: Any) -> None:
    path = str(tmp_path / "two.tfrecord")
    _written(path)
    WAYS[way](path)


@pytest.mark.parametrize("symbol", ["tf.linalg.expm", "tf.math.i0e", "tf.nn.conv3d", "tf.sinc"])
def test_a_function_of_numpy_that_an_error_names_exists(symbol: str) -> None:
    way = nearest(symbol)
    if way.startswith("numpy.") and not way.startswith("numpy.linalg"):
        assert callable(getattr(np, way.split(",")[0].removeprefix("numpy.")))


def test_a_program_of_sessions_hears_that_there_are_none() -> None:
    for name in ("disable_v2_behavior", "disable_eager_execution"):
        with pytest.raises(AttributeError, match="no session: values are computed immediately"):
            getattr(tf.compat.v1, name)


SETTINGS: dict[str, tuple[Any, ...]] = {
    "config.experimental.enable_op_determinism": (),
    "config.experimental.enable_tensor_float_32_execution": (True,),
    "config.optimizer.set_experimental_options": ({"layout_optimizer": True},),
    "config.optimizer.set_jit": (True,),
    "config.set_soft_device_placement": (True,),
    "data.experimental.enable_debug_mode": (),
    "debugging.set_log_device_placement": (False,),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_of_tensorflow_is_accepted_without_effect(name: str) -> None:
    mine, theirs = (operator.attrgetter(name)(t) for t in (tf, tensorflow))
    inspect.signature(theirs).bind(*SETTINGS[name])
    assert mine(*SETTINGS[name]) is None
    assert list(tf.data.Dataset.range(3).map(lambda x: x + 1).as_numpy_iterator()) == [1, 2, 3]


def test_logical_devices_are_tensorflows_without_accelerators() -> None:
    for given in ((), ("CPU",)):
        mine, theirs = (t.config.list_logical_devices(*given) for t in (tf, tensorflow))
        assert [tuple(d) for d in mine] == [(d.name, d.device_type) for d in theirs]
    assert tf.config.list_logical_devices("GPU") == []
    assert tf.config.experimental.list_logical_devices("TPU") == []


@pytest.mark.parametrize("value", ["a", b"a", "é", b"\xc3\xa9", b"\xff", bytearray(b"a"), 1, None])
@pytest.mark.parametrize("name", ["as_bytes", "as_str", "as_text", "as_str_any"])
@pytest.mark.parametrize("more", [(), ("latin-1",)])
def test_texts_and_bytes_become_each_other_as_in_tensorflow(
    name: str, value: Any, more: tuple[str, ...]
) -> None:
    def outcome(t: Any) -> Any:
        try:
            return getattr(t.compat, name)(value, *more)
        except (TypeError, UnicodeDecodeError) as error:
            return type(error), str(error)

    assert outcome(tf) == outcome(tensorflow)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_the_versions_of_compat_are_imported_as_modules(version: str) -> None:
    module = importlib.import_module(f"penstock.tf.compat.{version}")
    assert module is getattr(tf.compat, version)
    assert module.constant(3).numpy() == 3
