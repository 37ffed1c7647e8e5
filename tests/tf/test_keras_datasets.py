"""Datasets of folders and series, made by Keras's functions: penstock.tf and TensorFlow give the same."""

from __future__ import annotations

import copy
import sys
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from PIL import Image

import penstock.tf as tf
from penstock.tf.keras_datasets import dataset_function

SERIES, TARGETS = np.arange(60, dtype=np.float32).reshape(30, 2), np.arange(30)
SMALL = {"image_size": (16, 20), "seed": 3, "verbose": False}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "images": ("image", {**SMALL, "batch_size": 4}),
    "training": ("image", {**SMALL, "validation_split": 0.3, "subset": "training", "label_mode": "categorical"}),
    "both": ("image", {**SMALL, "validation_split": 0.3, "subset": "both", "interpolation": "nearest"}),
    "no labels": ("image", {**SMALL, "labels": None, "color_mode": "grayscale", "pad_to_aspect_ratio": True}),
    "two classes": ("image", {
        **SMALL, "class_names": ["rose", "daisy"], "label_mode": "binary", "shuffle": False,
        "crop_to_aspect_ratio": True,
    }),
    "channels first": ("image", {**SMALL, "data_format": "channels_first", "crop_to_aspect_ratio": True}),
    "given labels": ("image", {**SMALL, "labels": list(range(9)), "batch_size": None, "interpolation": "bicubic"}),
    "a wrong label": ("image", {"labels": "some"}),
    "texts": ("text", {"batch_size": 4, "seed": 1, "max_length": 7, "verbose": False}),
    "sounds": ("audio", {"output_sequence_length": 20, "seed": 2, "verbose": False}),
    "series": ("series", {"targets": TARGETS, "sequence_length": 5, "batch_size": 4}),
    "part of a series": ("series", {
        "targets": None, "sequence_length": 5, "sequence_stride": 3, "sampling_rate": 2, "start_index": 2,
        "end_index": 25,
    }),
    "shuffled series": ("series", {"targets": TARGETS, "sequence_length": 5, "shuffle": True, "seed": 7}),
    "a wrong rate": ("series", {"targets": None, "sequence_length": 5, "sampling_rate": 99}),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("classes")
    drawn = np.random.default_rng(0)
    for kind in ("daisy", "rose", "tulip"):
        for n in range(3):
            for suffix in ("image", "text", "audio"):
                (root / suffix / kind).mkdir(parents=True, exist_ok=True)
            pixels = drawn.integers(0, 255, (20 + n * 9, 30 + n, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / "image" / kind / f"{n}.{'png' if n % 2 else 'jpg'}")
            (root / "text" / kind / f"{n}.txt").write_text(f"{kind} é {n}" * n)
            with wave.open(str(root / "audio" / kind / f"{n}.wav"), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes(drawn.integers(-9, 9, 10 + 9 * n, np.int16).tobytes())
    return root


def seen(make: Callable[..., Any], kind: str, folder: Path, options: dict[str, Any]) -> Any:
    """What a user sees of the datasets: elements, their attributes, or the error."""
    given = SERIES if kind == "series" else str(folder / kind)
    try:
        made = make(given, **copy.deepcopy(options))  # Keras shuffles given labels in place
    except Exception as error:
        return type(error), str(error)
    return [
        (
            getattr(dataset, "class_names", None),
            getattr(dataset, "file_paths", None),
            [[(np.asarray(a).dtype, np.asarray(a).tolist()) for a in leaves(x)] for x in dataset],
        )
        for dataset in (made if isinstance(made, list) else [made])
    ]


def leaves(element: Any) -> Any:
    return element if isinstance(element, tuple) else (element,)


@pytest.mark.parametrize("case", CASES)
def test_datasets_equal_those_of_keras_with_tensorflow(case: str, folder: Path) -> None:
    kind, options = CASES[case]
    name = "timeseries_dataset_from_array" if kind == "series" else f"{kind}_dataset_from_directory"
    theirs = seen(getattr(keras.utils, name), kind, folder, options)
    assert seen(getattr(tf.keras.utils, name), kind, folder, options) == theirs
    assert getattr(tf.keras.preprocessing, name) is dataset_function(name)


def test_the_datasets_are_penstocks(folder: Path) -> None:
    made = tf.keras.utils.image_dataset_from_directory(str(folder / "image"), **SMALL)
    assert isinstance(made, tf.data.Dataset)
    assert str(made.element_spec[0].shape) == "(None, 16, 20, 3)"
    scaled = made.map(lambda image, label: (image / 255.0, tf.one_hot(label, 3)))
    assert next(iter(scaled))[1].shape == (9, 3)


def test_a_layer_that_needs_tensorflow_says_what_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tf.keras.layers.TextVectorization is keras.layers.TextVectorization
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(NotImplementedError, match=r"tf\.lookup tables and tf\.strings"):
        _ = tf.keras.layers.TextVectorization
