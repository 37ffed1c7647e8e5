"""Datasets for Keras's `fit`, `evaluate` and `predict`, on any of its backends.

Keras uses data directly if it is an instance of its `DataAdapter`. Once Keras has been imported, datasets pass this
`isinstance` check. That neither imports nor changes Keras. Each epoch is a new iteration; with `steps_per_epoch`, one
iteration continues over all epochs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from functools import cache
from types import FrameType
from typing import Any

import numpy as np

from penstock.tf.data.op import elements
from penstock.tf.nest import map_structure
from penstock.tf.tensor import Tensor

_ADAPTERS = "keras.src.trainers.data_adapters.data_adapter"
ADAPTER = frozenset({
    "batch_size", "get_jax_iterator", "get_numpy_iterator", "get_tf_dataset", "get_torch_dataloader",
    "has_partial_batch", "num_batches", "on_epoch_begin", "on_epoch_end", "partial_batch_size",
})  # fmt: skip
"""The attributes of an adapter that Keras uses."""


def with_adapter(kind: type) -> type:
    """A class that derives from this class and the adapter, for `isinstance`. Without Keras, the class unchanged."""
    module = sys.modules.get(_ADAPTERS)
    adapter = getattr(module, "DataAdapter", None)
    return kind if adapter is None else _both(kind, adapter)


@cache
def _both(kind: type, adapter: type) -> type:
    return type(kind.__name__, (kind, adapter), {"__module__": kind.__module__})


class Adapter:
    """The methods that Keras calls on a dataset."""

    def __init__(self, dataset: Any, class_weight: dict[int, float] | None = None) -> None:
        self.dataset = dataset
        self.class_weight = class_weight

    @property
    def num_batches(self) -> int | None:
        """Steps of an epoch; None if unknown or infinite."""
        self._take_class_weight(inspect.currentframe())
        known = self.dataset.op.cardinality()
        return None if known < 0 else known

    batch_size = has_partial_batch = partial_batch_size = None

    def get_numpy_iterator(self) -> Iterator[Any]:
        """A new epoch, as arrays."""
        batches = map(_batch, elements(self.dataset.op.open()))
        if self.class_weight is None:
            return batches
        return (_weighted(batch, self.class_weight) for batch in batches)

    get_jax_iterator = get_numpy_iterator

    def get_torch_dataloader(self) -> Any:
        """A new epoch, as an iterable of torch tensors."""
        import torch

        class Batches(torch.utils.data.IterableDataset[Any]):
            def __init__(self, adapter: Adapter) -> None:
                self.adapter = adapter

            def __iter__(self) -> Iterator[Any]:
                for batch in self.adapter.get_numpy_iterator():
                    yield map_structure(_torch, batch, lists=False)

        return torch.utils.data.DataLoader(Batches(self), batch_size=None)

    def get_tf_dataset(self) -> Any:
        """All epochs, as TensorFlow's own dataset."""
        import tensorflow as tf

        def spec(leaf: Any) -> Any:
            return tf.TensorSpec(leaf.shape.dims, leaf.dtype.name)

        signature = map_structure(spec, self.dataset.element_spec, lists=False)
        if self.class_weight is not None:
            signature = (*signature, tf.TensorSpec([None], "float32"))
        return tf.data.Dataset.from_generator(self.get_numpy_iterator, output_signature=signature)

    def _take_class_weight(self, frame: FrameType | None) -> None:
        """Apply the class weights of `fit`, which Keras passes only to its own adapters.

        The caller is Keras's iterator over epochs, while it is made. It gets an adapter that adds the weights.
        """
        # Skip the frames of this property and of the dataset's __getattr__, to find the caller.
        for _ in range(2):
            frame = None if frame is None else frame.f_back
        if frame is None or frame.f_code.co_name != "__init__":
            return
        if weights := frame.f_locals.get("class_weight"):
            if not hasattr(frame.f_locals.get("self"), "data_adapter"):
                raise ValueError(
                    "This version of Keras does not apply class_weight to a dataset; add weights as a "
                    "third component: .map(lambda x, y: (x, y, weights[y]))"
                )
            frame.f_locals["self"].data_adapter = Adapter(self.dataset, weights)

    def on_epoch_begin(self) -> None:
        """Do nothing, because an epoch begins with its iterator."""

    def on_epoch_end(self) -> None:
        """Do nothing."""


def _weighted(batch: Any, class_weight: dict[int, float]) -> tuple[Any, Any, Any]:
    """A batch (x, y) with the weight of each record's class; 1 for a class without a weight."""
    if not isinstance(batch, tuple) or len(batch) != 2 or not isinstance(batch[1], np.ndarray):
        raise ValueError(
            "class_weight needs elements (x, y) with one array of classes y; in place of it, add weights "
            "as a third component: .map(lambda x, y: (x, y, weights))"
        )
    inputs, labels = batch
    if labels.ndim > 1:
        one_hot = labels.shape[-1] > 1
        labels = labels.argmax(-1) if one_hot else labels.squeeze(-1)
    classes, numbers = np.unique(np.rint(labels).astype(np.int64), return_inverse=True)
    weights = np.array([class_weight.get(int(n), 1.0) for n in classes], np.float32)
    return inputs, batch[1], weights[numbers.reshape(labels.shape)]


def _batch(element: Any) -> Any:
    """An element in Keras's form: plain arrays in a tuple or dict."""
    return map_structure(_array, element, lists=False)


def _array(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.view(np.ndarray)
    if hasattr(leaf, "dense_shape"):
        from penstock.tf.sparse import to_dense

        return to_dense(leaf).view(np.ndarray)
    return leaf.to_tensor().view(np.ndarray) if hasattr(leaf, "row_splits") else leaf


def _torch(leaf: Any) -> Any:
    import torch

    if not isinstance(leaf, np.ndarray) or leaf.dtype == object:
        return leaf
    if leaf.dtype in (np.uint16, np.uint32, np.uint64):
        leaf = leaf.astype(np.int64 if leaf.dtype != np.uint16 else np.int32)
    return torch.from_numpy(leaf if leaf.flags.writeable else leaf.copy())
