"""Keras's functions that make datasets of TensorFlow, such as `tf.keras.utils.image_dataset_from_directory`: they run
Keras's own code with penstock.tf in the place of TensorFlow."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from penstock.tf.missing import MissingSymbolError

FUNCTIONS = {
    "image_dataset_from_directory": "image_dataset_utils",
    "text_dataset_from_directory": "text_dataset_utils",
    "audio_dataset_from_directory": "audio_dataset_utils",
    "timeseries_dataset_from_array": "timeseries_dataset_utils",
}
"""The functions, in `keras.utils` and `keras.preprocessing`, and the modules of `keras.src.utils` that define them."""
_LAYERS = {"Hashing", "HashedCrossing", "IntegerLookup", "StringLookup", "TextVectorization"}


@cache
def dataset_function(name: str) -> Callable[..., Any]:
    """One of these functions, whose datasets are those of penstock.tf.

    Example:
        >>> import numpy as np
        >>> from penstock.tf.keras_datasets import dataset_function
        >>> windows = dataset_function("timeseries_dataset_from_array")
        >>> next(iter(windows(np.arange(5), None, sequence_length=3))).numpy().tolist()
        [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    """
    tf = importlib.import_module("penstock.tf")
    shared = importlib.import_module("keras.src.utils.dataset_utils")
    utils = SimpleNamespace(**vars(shared))
    # Keras renamed it; each version calls one of the two.
    utils.labels_to_dataset = utils.labels_to_dataset_tf = _labels
    module = importlib.import_module(f"keras.src.utils.{FUNCTIONS[name]}")
    names = _copied(module, {"tf": tf, "dataset_utils": utils})
    for load in ("_load_image_tf", "load_image"):
        if name.startswith("image_") and load in names:
            names[load] = _with_crop(names[load])
    return names[name]


def _copied(module: ModuleType, replaced: dict[str, Any]) -> dict[str, Any]:
    """The names of a module, with copies of its functions that see other globals. The module itself is unchanged,
    because programs may use it with TensorFlow, too."""
    own = vars(module)
    made = {**own, **replaced}
    for name, value in own.items():
        if isinstance(value, FunctionType) and value.__globals__ is own:
            copy = FunctionType(value.__code__, made, name, value.__defaults__, value.__closure__)
            copy.__doc__, copy.__kwdefaults__ = value.__doc__, value.__kwdefaults__
            made[name] = copy
    return made


def _labels(labels: Any, label_mode: str, num_classes: int) -> Any:
    """A dataset of labels: numbers, columns of zeros and ones ("binary"), or one-hot vectors ("categorical")."""
    tf = importlib.import_module("penstock.tf")
    dataset = tf.data.Dataset.from_tensor_slices(labels)
    if label_mode == "binary":
        return dataset.map(lambda label: tf.expand_dims(tf.cast(label, "float32"), axis=-1))
    if label_mode == "categorical":
        return dataset.map(lambda label: tf.one_hot(label, num_classes))
    return dataset


def _with_crop(load: Callable[..., Any]) -> Callable[..., Any]:
    """Keras's function that loads an image, which imports its backend of TensorFlow to crop."""

    def loaded(
        path: Any,
        image_size: Any,
        num_channels: int,
        interpolation: str,
        data_format: str = "channels_last",
        crop_to_aspect_ratio: bool = False,
        pad_to_aspect_ratio: bool = False,
    ) -> Any:
        if not crop_to_aspect_ratio or pad_to_aspect_ratio:
            return load(
                path, image_size, num_channels, interpolation, data_format,
                crop_to_aspect_ratio, pad_to_aspect_ratio,
            )  # fmt: skip
        tf = importlib.import_module("penstock.tf")
        image = tf.image.decode_image(tf.io.read_file(path), num_channels, expand_animations=False)
        image = tf.image.resize(_cropped(image, *image_size), image_size, method=interpolation)
        return tf.transpose(image, (2, 0, 1)) if data_format == "channels_first" else image

    return loaded


def _cropped(image: Any, target_height: int, target_width: int) -> Any:
    """The largest part around the middle of an image that has the proportions of the target."""
    height, width = image.shape[:2]
    rows = max(min(height, int(float(width * target_height) / target_width)), 1)
    columns = max(min(width, int(float(height * target_width) / target_height)), 1)
    top, left = int(float(height - rows) / 2), int(float(width - columns) / 2)
    return image[top : top + rows, left : left + columns]


def refuse_layer(symbol: str) -> None:
    """Raise an error for a layer that needs TensorFlow, if it is not installed.

    Raises:
        MissingSymbolError: it is not installed.
    """
    name = symbol.rpartition(".")[2]
    if name in _LAYERS and importlib.util.find_spec("tensorflow") is None:
        hint = (
            'tf.lookup tables and tf.strings in a function given to Dataset.map: see "Functions of Keras that need '
            'TensorFlow" in docs/guide/tensorflow.md'
        )
        message = f"{symbol} is a layer of Keras that needs TensorFlow, which is not installed"
        raise MissingSymbolError(None, None, message, hint=hint)
