"""Keras's fit with the loader's batches, with the backend that KERAS_BACKEND names."""

from __future__ import annotations

import json
import random
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import penstock as ps
from training import CLASSES, SIZE, shapes
from training import loader as image_loader

STEPS = 6


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return shapes(tmp_path_factory.mktemp("keras"))


@pytest.fixture(scope="module")
def epochs(containers: list[Path]) -> list[list[list[int]]]:
    """The labels that the loader itself returns in four epochs."""
    ours = image_loader(containers[0])
    return [[batch["label"].tolist() for batch in ours] for _ in range(4)]


def labels(batch: tuple[Any, ...]) -> list[int]:
    return batch[1].tolist()


# -- batches by number --------------------------------------------------------------------------------


def test_a_batch_is_the_same_in_whatever_order_it_is_asked_for(
    containers: list[Path], epochs: list[list[list[int]]]
) -> None:
    ours = image_loader(containers[0]).keras()
    assert len(ours) == STEPS
    random.seed(3)
    for epoch in range(3):
        order = [*range(STEPS), *random.sample(range(STEPS), STEPS), 0, 1, 0, 1, 2, 5]
        for index in order:
            assert labels(ours[index]) == epochs[epoch][index]
        ours.on_epoch_end()
    with pytest.raises(IndexError):
        ours[STEPS]


def test_several_threads_may_ask(containers: list[Path], epochs: list[list[list[int]]]) -> None:
    ours = image_loader(containers[0]).keras()
    found: dict[tuple[int, int], list[int]] = {}

    def ask(me: int) -> None:
        for index in range(STEPS):
            found[me, index] = labels(ours[index])

    threads = [threading.Thread(target=ask, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {(n, i): epochs[0][i] for n in range(4) for i in range(STEPS)}


def test_an_epoch_ends_when_all_of_it_has_been_asked_for(
    containers: list[Path], epochs: list[list[list[int]]]
) -> None:
    ours = image_loader(containers[0]).keras()
    labels(ours[0])
    ours.on_epoch_end()  # Keras does this after it has read a batch to build a model
    assert labels(ours[0]) == epochs[0][0]


def test_what_the_model_is_given_can_be_chosen(containers: list[Path]) -> None:
    def twice(batch: dict[str, Any]) -> dict[str, Any]:
        return {**batch, "other": batch["image"], "weight": batch["label"] / 2}

    ours = image_loader(containers[0], map=twice)
    (alone,) = ours.keras(y=None)[0]
    assert alone.shape == (40, SIZE, SIZE, 3)
    inputs, label, weight = ours.keras(["image", "other"], "label", "weight")[0]
    assert list(inputs) == ["image", "other"]
    assert weight.dtype == np.float32
    assert np.array_equal(weight * 2, label)
    with pytest.raises(ps.SchemaError, match="image, label"):
        ours.keras(x="picture")[0]
    with pytest.raises(ValueError, match="needs y="):
        ours.keras(y=None, sample_weight="weight")


# -- in a training ------------------------------------------------------------------------------------


def model() -> Any:
    keras.utils.set_random_seed(0)
    layers = keras.layers
    net = keras.Sequential(
        [
            layers.Rescaling(1 / 255),
            layers.Conv2D(8, 3, strides=2, activation="relu"),
            layers.Conv2D(16, 3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(CLASSES),
        ]
    )
    net.compile(keras.optimizers.Adam(3e-3), losses_of())
    return net


def losses_of() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


class Notes(keras.callbacks.Callback):
    """Records the mean loss so far in the epoch after each step, and the state after step `stop`, where it stops
    training."""

    def __init__(self, data: Any, stop: int | None = None) -> None:
        super().__init__()
        self.data, self.stop = data, stop
        self.losses: list[float] = []
        self.state: Any = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(float(logs["loss"]))
        if len(self.losses) == self.stop:
            self.state = self.data.state_dict(batch + 1)
            self.model.stop_training = True


def fit(path: Path, epochs: int) -> list[float]:
    net, data = model(), image_loader(path).keras()
    notes = Notes(data)
    net.fit(data, epochs=epochs, shuffle=False, verbose=0, callbacks=[notes])
    return notes.losses


def test_fit_sees_every_epoch_in_the_loaders_order(
    containers: list[Path], epochs: list[list[list[int]]]
) -> None:
    seen: list[int] = []

    def watch(batch: dict[str, Any]) -> dict[str, Any]:
        seen.extend(batch["label"].tolist())
        return batch

    data = image_loader(containers[0], map=watch, threads=0).keras()
    asked: list[tuple[int, list[int]]] = []
    given = type(data).__getitem__

    class Watched(type(data)):
        def __getitem__(self, index: int) -> Any:
            batch = given(self, index)
            asked.append((index, labels(batch)))
            return batch

    data.__class__ = Watched
    net = model()
    net.fit(data, epochs=3, shuffle=False, verbose=0)
    # Keras may read a few batches before it trains; the last batches belong to the training.
    trained = asked[-3 * STEPS :]
    assert [index for index, _ in trained] == [*range(STEPS)] * 3
    assert [found for _, found in trained] == [*epochs[0], *epochs[1], *epochs[2]]


def test_a_net_learns_the_same_from_every_container(containers: list[Path]) -> None:
    curves = [fit(path, 10) for path in containers]
    assert len(curves[0]) == 10 * STEPS
    assert curves[0] == pytest.approx(curves[1], rel=1e-4)
    assert curves[0] == pytest.approx(curves[2], rel=1e-4)
    assert curves[0][-1] < 0.5 * curves[0][0], "it has learnt"


def test_evaluate_and_predict_take_it(containers: list[Path]) -> None:
    net, data = model(), image_loader(containers[0])
    net.fit(data.keras(), shuffle=False, verbose=0, validation_data=data.keras())
    assert net.evaluate(data.keras(), verbose=0) > 0
    assert net.predict(data.keras(y=None), verbose=0).shape == (240, CLASSES)


@pytest.mark.parametrize("stop", [1, 6, 9])
def test_a_stopped_training_continues_as_if_it_had_not_been_stopped(
    containers: list[Path], stop: int
) -> None:
    def mean_of_step(losses: list[float]) -> list[float]:
        """Keras reports the mean since the epoch began; this is the loss of each step."""
        return [loss * (n + 1) - losses[n - 1] * n if n else loss for n, loss in enumerate(losses)]

    def by_epoch(losses: list[float], first: int = STEPS) -> list[float]:
        cuts = [0, *range(first, len(losses), STEPS), len(losses)]
        return [v for a, b in pairwise(cuts) for v in mean_of_step(losses[a:b])]

    path = containers[0]
    whole = by_epoch(fit(path, 3))
    net, data = model(), image_loader(path).keras()
    notes = Notes(data, stop)
    net.fit(data, epochs=3, shuffle=False, verbose=0, callbacks=[notes])
    state = json.loads(json.dumps(notes.state))

    data = image_loader(path).keras()
    data.load_state_dict(state)
    left, after = len(data), Notes(data)
    epoch = state["epoch"]
    # The rest of an epoch is a separate fit, since Keras asks for its length only once.
    for first, last in ((epoch, epoch + 1), (epoch + 1, 3)):
        net.fit(data, initial_epoch=first, epochs=last, shuffle=False, verbose=0, callbacks=[after])
    losses = [*by_epoch(notes.losses), *by_epoch(after.losses, left)]
    assert losses == pytest.approx(whole, rel=1e-3)


def test_integers_that_the_backend_jax_would_wrap_around_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ps.write({"x": [1, 2**40 + 5], "y": [1, 2]}, tmp_path / "a.parquet")
    ours = ps.Loader(ps.open(tmp_path / "a.parquet"), 2)
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with pytest.raises(ps.SchemaError, match=f"'x': a number does not fit int32.*\\n.*{2**40 + 5}"):
        ours.keras("x", "y")[0]
    assert ours.keras("y", None)[0][0].tolist() == [1, 2]
    monkeypatch.setattr(keras.config, "backend", lambda: "torch")
    assert ours.keras("x", "y")[0][0].tolist() == [1, 2**40 + 5]
