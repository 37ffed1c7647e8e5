"""Verbs of datasets that keep elements in files, and TensorFlow 1's facts about elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.tf.binding import bound
from penstock.tf.data.base import Base
from penstock.tf.data.resampling import Resample
from penstock.tf.data.saving import Loaded, Snapshot, save
from penstock.tf.data.spec_parts import classes_of, shapes_of, types_of


class KeepingVerbs(Base):
    """save, load, snapshot, rejection_resample, output_types and similar."""

    def save(
        self,
        path: Any,
        compression: str | None = None,
        shard_func: Any = None,
        checkpoint_args: Any = None,
    ) -> None:
        """Write all elements to a folder, for `load`.

        Args:
            path: the folder; replaced if `save` wrote it.
            compression: "GZIP" or None.
            shard_func, checkpoint_args: ignored.

        Raises:
            AlreadyExistsError: the folder holds other files.

        Example:
            >>> import penstock.tf as tf
            >>> tf.data.Dataset.range(3).save("three")
            >>> [int(x) for x in tf.data.Dataset.load("three")]
            [0, 1, 2]
        """
        save(self.op, path, compression)

    @classmethod
    def load(
        cls,
        path: Any,
        element_spec: Any = None,
        compression: str | None = None,
        reader_func: Any = None,
        wait: bool = False,
    ) -> Any:
        """The elements that `save` of penstock.tf wrote.

        Args:
            path: the folder.
            element_spec, compression, wait: ignored, because the folder stores these facts.
            reader_func: a function from a dataset of datasets to a dataset.

        Raises:
            NotFoundError: `save` wrote no such folder. TensorFlow's folders are not read.
        """
        made = Base.of(Loaded(path))
        if reader_func is None:
            return made
        return reader_func(Base.of(Loaded(path)).window(max(1, len(made))))

    def snapshot(
        self,
        path: Any,
        compression: str = "AUTO",
        reader_func: Any = None,
        shard_func: Any = None,
        name: str | None = None,
    ) -> Any:
        """The same elements. The first complete pass keeps them in a folder, from which later passes and programs read.

        Args:
            path: the folder.
            compression: "GZIP", or "AUTO" or None for none.
            reader_func, shard_func, name: ignored.
        """
        return self.of(Snapshot(self.op, path, compression))

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any = None,
        seed: Any = None,
        name: str | None = None,
    ) -> Any:
        """Pairs of (class, element), with elements left out at random until classes are as frequent as wanted.

        The random numbers are not those of TensorFlow.

        Args:
            class_func: a function from an element to its class, a number from 0.
            target_dist: the wanted frequency of each class.
            initial_dist: the frequency of each class in this dataset; None counts it while reading.
            seed: the seed of the random numbers.
            name: ignored.
        """
        return self.of(Resample(self.op, bound(class_func), target_dist, initial_dist, seed))

    @property
    def output_types(self) -> Any:
        """The dtypes of an element (TensorFlow 1)."""
        return types_of(self.element_spec)

    @property
    def output_shapes(self) -> Any:
        """The shapes of an element (TensorFlow 1)."""
        return shapes_of(self.element_spec)

    @property
    def output_classes(self) -> Any:
        """The kinds of tensors of an element (TensorFlow 1)."""
        return classes_of(self.element_spec)

    def make_one_shot_iterator(self) -> Any:
        """`iter(dataset)` (TensorFlow 1)."""
        return iter(self)

    def make_initializable_iterator(self, shared_name: Any = None) -> Any:
        """`iter(dataset)`, which needs no initialization (TensorFlow 1)."""
        return iter(self)
