"""Verbs of datasets that take a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.tf.data.base import Base
from penstock.tf.data.grouping import Groups
from penstock.tf.data.interleaving import FlatMap, Interleave
from penstock.tf.data.mapping import Filter, Map, Scan, TakeWhile
from penstock.tf.data.op import Op, as_element, call
from penstock.tf.graphs import Function, opened
from penstock.tf.seeds import traceable


class op_of(Function):  # noqa: N801 -- used like a function
    """Convert a function from an element to a dataset to a function that returns the dataset's op."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, element: Any) -> Op:
        dataset = call(self._function, element)
        if not isinstance(dataset, Base):
            raise TypeError(f"`map_func` must return a `Dataset` object. Got {type(dataset)}.")
        return dataset.op

    def opened(self) -> op_of:
        """The function for one iterator."""
        return op_of(opened(self._function))


class FunctionVerbs(Base):
    """map, filter, interleave and others."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        synchronous: bool | None = None,
        use_unbounded_threadpool: bool = False,
        name: str | None = None,
    ) -> Any:
        """The results of a function of each element, in the same order.

        The function gets values, so it may do anything. A function that only parses records and chooses from the result
        (`tf.io.parse_single_example`, then some of its features) is called once, and then executed on whole columns.

        Args:
            map_func: a function of an element. The components of a tuple are passed as several arguments.
            num_parallel_calls: the number of threads, `tf.data.AUTOTUNE` for one per core; None: the caller's thread,
                which also calls a function that takes less than 0.1 ms.
            deterministic, synchronous, use_unbounded_threadpool, name: ignored.

        Raises:
            InvalidArgumentError: num_parallel_calls is 0 or less.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(3).map(lambda x: x * 2)]
            [0, 2, 4]
        """
        return self.of(Map(self.op, traceable(map_func), num_parallel_calls))

    def group_by_window(
        self,
        key_func: Callable[..., Any],
        reduce_func: Callable[[Any, Any], Any],
        window_size: Any = None,
        window_size_func: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> Any:
        """Collect elements with the same key in windows, and replace each window by a dataset that a function returns.

        Args:
            key_func: a function from an element to its key, an integer.
            reduce_func: a function from a key and the dataset of a window to a dataset.
            window_size: elements of a window; the last window of a key may have fewer.
            window_size_func: a function from a key to its window size, instead of window_size.
            name: ignored.

        Raises:
            ValueError: not exactly one of window_size and window_size_func.
            InvalidArgumentError: when read: a window size of 0.

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
        return self.of(
            Groups(self.op, traceable(key_func), traceable(reduce_func), traceable(size_of))
        )

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> Any:
        """The elements for which a function returns True.

        Raises:
            ValueError: its result is not a bool.

        Example:
            >>> import penstock.tf as tf
            >>> [int(x) for x in tf.data.Dataset.range(5).filter(lambda x: x % 2 == 0)]
            [0, 2, 4]
        """
        return self.of(Filter(self.op, traceable(predicate)))

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> Any:
        """The elements before the first for which a function returns False."""
        return self.of(TakeWhile(self.op, traceable(predicate)))

    def scan(
        self, initial_state: Any, scan_func: Callable[..., Any], name: str | None = None
    ) -> Any:
        """The outputs of a function that gets a state and an element, and returns the next state and an output.

        Example:
            >>> import penstock.tf as tf
            >>> sums = tf.data.Dataset.range(4).scan(0, lambda state, x: (state + x, state + x))
            >>> [int(x) for x in sums]
            [0, 1, 3, 6]
        """
        return self.of(Scan(self.op, initial_state, traceable(scan_func)))

    def reduce(
        self, initial_state: Any, reduce_func: Callable[..., Any], name: str | None = None
    ) -> Any:
        """The last state of a function that gets a state and an element, and returns the next state.

        Example:
            >>> import penstock.tf as tf
            >>> int(tf.data.Dataset.range(4).reduce(0, lambda state, x: state + x))
            6
        """
        state = as_element(initial_state)
        function = traceable(reduce_func).opened()
        for element in self:
            state = as_element(function(state, element))
        return state

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> Any:
        """The elements of the datasets that a function makes from each element, concatenated.

        Example:
            >>> import penstock.tf as tf
            >>> counts = tf.data.Dataset.range(3)
            >>> [int(x) for x in counts.flat_map(lambda n: tf.data.Dataset.range(n))]
            [0, 0, 1]
        """
        return self.of(FlatMap(self.op, op_of(traceable(map_func))))

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: Any = None,
        block_length: Any = None,
        num_parallel_calls: Any = None,
        deterministic: bool | None = None,
        name: str | None = None,
    ) -> Any:
        """Like `flat_map`, but with several datasets open at a time, whose elements alternate.

        Args:
            map_func: a function from an element to a dataset.
            cycle_length: how many datasets are open; None depends on the machine's cores, as in TensorFlow.
            block_length: consecutive elements of one dataset.
            num_parallel_calls: checked like in TensorFlow; does not change the order.
            deterministic, name: ignored.

        Raises:
            InvalidArgumentError: a number out of range.
            TypeError: the function does not return a dataset.

        Example:
            >>> import penstock.tf as tf
            >>> tens = tf.data.Dataset.from_tensor_slices([10, 20])
            >>> [int(x) for x in tens.interleave(lambda n: tf.data.Dataset.range(n, n + 2), 2)]
            [10, 20, 11, 21]
        """
        made = op_of(traceable(map_func))
        return self.of(Interleave(self.op, made, cycle_length, block_length, num_parallel_calls))

    def apply(self, transformation_func: Callable[..., Any]) -> Any:
        """The dataset that a function makes from this one.

        Raises:
            TypeError: the function does not return a dataset.
        """
        dataset = transformation_func(self)
        if not isinstance(dataset, Base):
            raise TypeError(
                f"`transformation_func` must return a `tf.data.Dataset` object. Got {type(dataset)}."
            )
        return dataset
