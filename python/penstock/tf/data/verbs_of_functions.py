"""Verbs of datasets that take a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.tf.data.base import Base
from penstock.tf.data.grouping import Groups
from penstock.tf.data.interleaving import Interleave
from penstock.tf.data.mapping import Filter, Map, Scan, TakeWhile
from penstock.tf.data.op import Op, as_element, call


def op_of(function: Callable[..., Any]) -> Callable[[Any], Op]:
    """A function that makes a dataset of an element, as one that gives what that is made of."""

    def made(element: Any) -> Op:
        dataset = call(function, element)
        if not isinstance(dataset, Base):
            raise TypeError(f"`map_func` must return a `Dataset` object. Got {type(dataset)}.")
        return dataset.op

    return made


class FunctionVerbs(Base):
    """map, filter, interleave and their kin."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> Any:
        """A function of each element, in the same order.

        The function sees values, so it may do anything. One that only parses and chooses
        (`tf.io.parse_single_example`, then some of its results) is called once, and done by columns.

        Args:
            map_func: takes an element; a tuple's components as several arguments.
            num_parallel_calls: on how many threads, `tf.data.AUTOTUNE` for one a core; None: here.
            deterministic, synchronous, use_unbounded_threadpool, name: ignored.

        Raises:
            InvalidArgumentError: num_parallel_calls is 0 or less.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(3).map(lambda x: x * 2)]
            [0, 2, 4]
        """
        return self.of(Map(self.op, map_func, num_parallel_calls))

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: Any = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Any:
        """Windows of elements of one key, and what a function makes of each.

        Args:
            key_func: gives the key of an element, a whole number.
            reduce_func: takes a key and the dataset of a window, gives a dataset.
            window_size: elements of a window; the last one of a key may have less.
            window_size_func: gives that for a key, in the place of window_size.
            name: ignored.

        Raises:
            ValueError: not exactly one of window_size and window_size_func.
            InvalidArgumentError: when read: a window of no elements.

        Example:
            >>> import penstock.tf as tf
            >>> dataset = tf.data.Dataset.range(5).group_by_window(
            ...     lambda x: x % 2, lambda key, window: window.batch(2), window_size=2
            ... )
            >>> [batch.numpy().tolist() for batch in dataset]
            [[0, 2], [1, 3], [4]]
        """
        if (window_size is None) == (window_size_func is None):
            raise ValueError(
                "Must pass either the `window_size` argument or the `window_size_func` argument."
            )
        size_of = window_size_func or (lambda key: window_size)
        return self.of(Groups(self.op, key_func, reduce_func, size_of))

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Any:
        """The elements of which a function says True.

        Raises:
            ValueError: what it says is no bool.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(5).filter(lambda x: x % 2 == 0)]
            [0, 2, 4]
        """
        return self.of(Filter(self.op, predicate))

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Any:
        """The elements before the first of which a function says False."""
        return self.of(TakeWhile(self.op, predicate))

    def scan(
        self, initial_state: Any, scan_func: Callable[..., Any], name: str | None = None
    ) -> Any:
        """Elements made by a function of a state and an element, which gives (next state, output).

        Example:
            >>> import penstock.tf as tf
            >>> sums = tf.data.Dataset.range(4).scan(0, lambda state, x: (state + x, state + x))
            >>> [int(x) for x in sums]
            [0, 1, 3, 6]
        """
        return self.of(Scan(self.op, initial_state, scan_func))

    def reduce(
        self, initial_state: Any, reduce_func: Callable[..., Any], name: str | None = None
    ) -> Any:
        """The last state of a function of (state, element).

        Example:
            >>> import penstock.tf as tf
            >>> int(tf.data.Dataset.range(4).reduce(0, lambda state, x: state + x))
            6
        """
        state = as_element(initial_state)
        for element in self:
            state = as_element(reduce_func(state, element))
        return state

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> Any:
        """The elements of the datasets that a function makes of each element, one after another.

        Example:
            >>> import penstock.tf as tf
            >>> counts = tf.data.Dataset.range(3)
            >>> [int(x) for x in counts.flat_map(lambda n: tf.data.Dataset.range(n))]
            [0, 0, 1]
        """
        return self.of(Interleave(self.op, op_of(map_func), 1, 1))

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: Any = None,
        block_length: Any = None,
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Any:
        """The same, with several datasets open at once, which take turns.

        Args:
            map_func: makes a dataset of an element.
            cycle_length: datasets that are open; None depends on the machine's cores, as in TensorFlow.
            block_length: elements of one turn.
            num_parallel_calls: checked as TensorFlow does; changes nothing in the order.
            deterministic, name: ignored.

        Raises:
            InvalidArgumentError: a number out of its range.
            TypeError: the function makes something else.

        Example:
            >>> import penstock.tf as tf
            >>> tens = tf.data.Dataset.from_tensor_slices([10, 20])
            >>> [int(x) for x in tens.interleave(lambda n: tf.data.Dataset.range(n, n + 2), 2)]
            [10, 20, 11, 21]
        """
        made = op_of(map_func)
        return self.of(Interleave(self.op, made, cycle_length, block_length, num_parallel_calls))

    def apply(self, transformation_func: Callable[..., Any]) -> Any:
        """What a function makes of this dataset.

        Raises:
            TypeError: it makes no dataset.
        """
        dataset = transformation_func(self)
        if not isinstance(dataset, Base):
            raise TypeError(
                f"`transformation_func` must return a `tf.data.Dataset` object. Got {type(dataset)}."
            )
        return dataset
