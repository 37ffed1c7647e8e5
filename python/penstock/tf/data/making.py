"""Makes datasets from data in memory, generators, file names and other datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.tf.data.base import Base
from penstock.tf.data.choosing import Zip
from penstock.tf.data.interleaving import Choose, Draws, Numbers
from penstock.tf.data.shuffling import Shuffle
from penstock.tf.data.sources import Generator, Range, Tensors, TensorSlices, signature_of
from penstock.tf.errors import InvalidArgumentError
from penstock.tf.files import found_by
from penstock.tf.nest import map_structure
from penstock.tf.seeds import op_seeds
from penstock.tf.tensor import Tensor, convert_to_tensor


class Making(Base):
    """from_tensor_slices, from_generator, range, list_files and others."""

    @classmethod
    def from_tensors(cls, tensors: Any, name: str | None = None) -> Any:
        """A dataset of one element.

        Example:
            >>> import penstock.tf as tf
            >>> next(iter(tf.data.Dataset.from_tensors([1, 2]))).numpy().tolist()
            [1, 2]
        """
        return cls.of(Tensors(tensors))

    @classmethod
    def from_tensor_slices(cls, tensors: Any, name: str | None = None) -> Any:
        """A dataset of the rows of tensors.

        Args:
            tensors: a structure of arrays, nested lists, sparse or ragged tensors with equal numbers of rows. Lists
                are tensors; tuples and dicts are structure.
            name: ignored.

        Raises:
            ValueError: different numbers of rows, or scalars.

        Example:
            >>> import penstock.tf as tf
            >>> pairs = tf.data.Dataset.from_tensor_slices(([1, 2], ["a", "b"]))
            >>> [(int(n), text.numpy()) for n, text in pairs]
            [(1, b'a'), (2, b'b')]
        """
        return cls.of(TensorSlices(tensors))

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Any = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> Any:
        """A dataset of the elements that a generator yields.

        Args:
            generator: a function that returns an iterator. It is called for each pass.
            output_types, output_shapes: older arguments for output_signature.
            args: the arguments of the function, as arrays.
            output_signature: a structure of `tf.TensorSpec`.
            name: ignored.

        Raises:
            TypeError: no signature is given.
            InvalidArgumentError: when read: the generator yields a value that does not fit the signature.

        Example:
            >>> import penstock.tf as tf
            >>> spec = tf.TensorSpec([], tf.int64)
            >>> [
            ...     int(x)
            ...     for x in tf.data.Dataset.from_generator(
            ...         lambda: iter([3, 4]), output_signature=spec
            ...     )
            ... ]
            [3, 4]
        """
        if output_signature is not None and (output_types or output_shapes):
            raise TypeError(
                "The `output_types` and `output_shapes` arguments cannot be used together with the "
                "`output_signature` argument."
            )
        signature = output_signature
        if signature is None:
            signature = signature_of(output_types, output_shapes)
        return cls.of(Generator(generator, signature, args))

    @classmethod
    def range(cls, *args: Any, output_type: Any = None, name: str | None = None) -> Any:
        """Numbers: stop; start and stop; or start, stop and step.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(5, 0, -2)]
            [5, 3, 1]
        """
        return cls.of(Range(args, output_type))

    @classmethod
    def list_files(
        cls,
        file_pattern: Any,
        shuffle: bool | None = None,
        seed: Any = None,
        name: str | None = None,
    ) -> Any:
        """The names of matching files, in a different order in each epoch.

        Args:
            file_pattern: one pattern or several: `*`, `?`, `[ab]`, `[!ab]`; `*` does not cross a slash.
            shuffle: False sorts the names by their bytes.
            seed: the seed of the shuffle.
            name: ignored.

        Raises:
            InvalidArgumentError: no file matches.
        """
        from penstock.tf.data.records import names_of

        patterns = [pattern.decode() for pattern in names_of(file_pattern).tolist()]
        found = sorted(path.encode() for pattern in patterns for path in found_by(pattern))
        if not found:
            shown = ", ".join(patterns)
            raise InvalidArgumentError(None, None, f"No files matched pattern: {shown}")
        column = np.empty(len(found), object)
        column[:] = found
        op = TensorSlices(column.view(Tensor))
        return cls.of(op if shuffle is False else Shuffle(op, len(found), seed, True))

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None, name: str | None = None) -> Any:
        """Structures of the elements of several datasets, until one ends.

        Args:
            args: datasets, or one structure of datasets.
            datasets: an older argument for the structure.
            name: ignored.

        Raises:
            TypeError: an argument is not a dataset.

        Example:
            >>> import penstock.tf as tf
            >>> first, second = tf.data.Dataset.range(2), tf.data.Dataset.range(5, 9)
            >>> [(int(a), int(b)) for a, b in tf.data.Dataset.zip(first, second)]
            [(0, 5), (1, 6)]
        """
        if not args and datasets is None:
            raise TypeError("Must pass at least one dataset to `zip`.")
        if args and datasets is not None:
            raise TypeError("Both `*args` and `datasets` cannot be set.")
        structure = datasets if datasets is not None else args[0] if len(args) == 1 else args
        return cls.of(Zip(map_structure(_op_of, structure, lists=False)))

    @staticmethod
    def choose_from_datasets(
        datasets: Any, choice_dataset: Any, stop_on_empty_dataset: bool = True
    ) -> Any:
        """Each element from the dataset whose number another dataset yields.

        Example:
            >>> import penstock.tf as tf
            >>> sets = [tf.data.Dataset.range(3), tf.data.Dataset.range(10, 13)]
            >>> choice = tf.data.Dataset.from_tensor_slices(tf.constant([1, 0, 1], tf.int64))
            >>> [int(x) for x in tf.data.Dataset.choose_from_datasets(sets, choice)]
            [10, 0, 11]
        """
        ops = [_op_of(dataset) for dataset in datasets]
        if not ops:
            raise ValueError("Invalid `datasets`. `datasets` should not be empty.")
        return Base.of(Choose(ops, _op_of(choice_dataset), stop_on_empty_dataset))

    @staticmethod
    def sample_from_datasets(
        datasets: Any,
        weights: Any = None,
        seed: Any = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> Any:
        """Elements of several datasets, drawn by weights.

        The same seed gives the same choices as in TensorFlow.

        Args:
            datasets: the datasets.
            weights: the weight of each dataset; None for equal weights.
            seed: a number; with it or `tf.random.set_seed` the choices are repeatable.
            stop_on_empty_dataset: end with the first dataset that ends.
            rerandomize_each_iteration: different choices in each epoch.

        Raises:
            ValueError: there are no datasets, or the number of weights differs.
        """
        ops = [_op_of(dataset) for dataset in datasets]
        if not ops:
            raise ValueError("Invalid `datasets`. `datasets` should not be empty.")
        shares = np.ones(len(ops)) if weights is None else _weights(weights)
        if shares.shape != (len(ops),):
            raise ValueError(
                "Invalid `weights`. `weights` should have the same length as `datasets`."
            )
        if len(ops) == 1:
            return Base.of(ops[0])
        numbers = Numbers(op_seeds(seed), changes=rerandomize_each_iteration is True)
        return Base.of(Choose(ops, Draws(shares, numbers), stop_on_empty_dataset))

    @staticmethod
    def random(
        seed: Any = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
    ) -> Any:
        """Endless random numbers from 0 to below 2^32, int64.

        Args:
            seed: a number; with it or `tf.random.set_seed` they are repeatable.
            rerandomize_each_iteration: different numbers in each epoch.
            name: ignored.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.random(seed=4).take(2)]
            [3128586565, 2023892699]
        """
        return Base.of(Numbers(op_seeds(seed), changes=rerandomize_each_iteration is True))

    @staticmethod
    def counter(
        start: Any = 0, step: Any = 1, dtype: Any = "int64", name: str | None = None
    ) -> Any:
        """Endless numbers."""
        from penstock.tf.data.sources import Counter

        return Base.of(Counter(start, step, dtype))


def _weights(weights: Any) -> np.ndarray:
    given = convert_to_tensor(weights)
    if given.dtype.kind != "f":
        raise TypeError(f"`weights` must be float32 or float64, not {given.dtype}")
    return given.view(np.ndarray)


def _op_of(dataset: Any) -> Any:
    if not isinstance(dataset, Base):
        raise TypeError(f"Invalid `datasets`. `datasets` must be datasets, not {type(dataset)}.")
    return dataset.op
