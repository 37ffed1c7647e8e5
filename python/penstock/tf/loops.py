"""Loops and choices that TensorFlow puts in its graphs: `tf.while_loop`, `scan`, `foldl`, `case`; and `TensorArray`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from penstock.tf import probing
from penstock.tf.arrays import concat as _concat
from penstock.tf.dtypes import as_dtype
from penstock.tf.errors import InvalidArgumentError, OutOfRangeError
from penstock.tf.functions import is_true
from penstock.tf.nest import flatten, map_structure, pack_sequence_as
from penstock.tf.shapes import TensorShape
from penstock.tf.tensor import Tensor, convert_to_tensor


class TensorArray:
    """A list of tensors that a loop writes. `write` returns the changed array, which the loop must use from then on.

    Args:
        dtype: the dtype of the tensors.
        size: the initial number of tensors.
        dynamic_size: whether the number may grow.
        element_shape: the shape of each tensor, if it is known.
        clear_after_read, tensor_array_name, handle, flow, infer_shape, colocate_with_first_write_call, name: ignored.

    Example:
        >>> import penstock.tf as tf
        >>> squares = tf.TensorArray(tf.int32, size=3)
        >>> for i in range(3):
        ...     squares = squares.write(i, i * i)
        >>> squares.stack().numpy()
        array([0, 1, 4], dtype=int32)
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = 0,
        dynamic_size: bool = False,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: Any = None,
        flow: Any = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        self.dtype = as_dtype(dtype)
        self.dynamic_size = dynamic_size
        self.element_shape = TensorShape(element_shape)
        self._values: list[Any] = [None] * int(size or 0)

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array with a tensor stored at this index.

        Raises:
            OutOfRangeError: the index is beyond the end.
        """
        place = int(index)
        made = self._copy()
        if place >= len(made._values):
            if not (self.dynamic_size or probing.is_on()):
                raise OutOfRangeError(
                    None, None, f"Tried to write to index {place} but array is not resizeable and size is: {len(self._values)}",
                )  # fmt: skip
            made._values += [None] * (place + 1 - len(made._values))
        made._values[place] = convert_to_tensor(value, self.dtype)
        return made

    def _copy(self) -> TensorArray:
        made = TensorArray(
            self.dtype, dynamic_size=self.dynamic_size, element_shape=self.element_shape
        )
        made._values = list(self._values)
        return made

    def read(self, index: Any, name: str | None = None) -> Tensor:
        """The tensor at this index."""
        place = int(index)
        if not 0 <= place < len(self._values):
            raise OutOfRangeError(
                None,
                None,
                f"Tried to read from index {place} but array size is: {len(self._values)}",
            )
        return self._all()[place]

    def size(self, name: str | None = None) -> Tensor:
        """The number of tensors, int32."""
        return np.array(len(self._values), np.int32).view(Tensor)

    def _all(self) -> list[Tensor]:
        """The tensors, with zeros for indices that were not written."""
        known = next((v for v in self._values if v is not None), None)
        shape = self.element_shape if known is None else known.shape
        if shape.rank is None or None in shape:
            shape = TensorShape([0 if s is None else s for s in shape])
        zero = np.zeros(tuple(shape), self.dtype.dtype).view(Tensor)  # type: ignore[arg-type]
        return [zero if v is None else v for v in self._values]

    def stack(self, name: str | None = None) -> Tensor:
        """The tensors along a new first dimension.

        Raises:
            InvalidArgumentError: their shapes differ.
        """
        parts = self._all()
        if probing.is_on():
            return self._placeholder()
        if not parts:
            shape = [0, *(s or 0 for s in self.element_shape)]
            return np.zeros(shape, self.dtype.dtype).view(Tensor)
        try:
            return np.stack(parts).view(Tensor)
        except ValueError as error:
            raise InvalidArgumentError(
                None, None, f"TensorArray has inconsistent shapes: {error}"
            ) from None

    def _placeholder(self) -> Tensor:
        """A placeholder for a stack of unknown size, because it is not known how often a loop runs."""
        known = next((v for v in self._values if v is not None), None)
        if known is None and self.element_shape.rank is None:
            return probing.array(None, self.dtype).view(Tensor)
        shape = self.element_shape if known is None else known.shape
        return probing.array([None, *shape], self.dtype).view(Tensor)

    def concat(self, name: str | None = None) -> Tensor:
        """The tensors joined along their first dimension."""
        return _concat(self._all(), 0)

    def gather(self, indices: Any, name: str | None = None) -> Tensor:
        """The tensors at these indices, along a new first dimension."""
        parts = self._all()
        return np.stack([parts[int(i)] for i in np.asarray(indices)]).view(Tensor)

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """The array with the slices of a tensor along its first dimension."""
        made = self._copy()
        made._values = list(convert_to_tensor(value))
        return made

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """The array with the slices of a tensor stored at these indices."""
        made = self
        for place, part in zip(np.asarray(indices), convert_to_tensor(value), strict=True):
            made = made.write(place, part)
        return made

    def identity(self) -> TensorArray:
        """The same tensors."""
        return self._copy()

    def close(self, name: str | None = None) -> None:
        """No effect."""

    def __len__(self) -> int:
        return len(self._values)


def _values(state: Any) -> Any:
    """A state of a loop, with tensors at its leaves."""
    return map_structure(lambda leaf: leaf if _is_kept(leaf) else convert_to_tensor(leaf), state)


def _is_kept(leaf: Any) -> bool:
    return isinstance(leaf, TensorArray) or hasattr(leaf, "with_values") or leaf is None


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    shape_invariants: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    maximum_iterations: Any = None,
    name: str | None = None,
) -> Any:
    """Call `body` as long as `cond` is true, and return the final values of the variables.

    Args:
        cond: a function of the variables that returns whether the loop continues.
        body: a function of the variables that returns their next values.
        loop_vars: a list or tuple of tensors, structures of them and TensorArrays.
        maximum_iterations: the loop ends after at most this many iterations.
        shape_invariants: the shapes of variables whose shapes may change; only used for the element_spec.
        parallel_iterations, back_prop, swap_memory, name: ignored.

    Example:
        >>> import penstock.tf as tf
        >>> i, total = tf.while_loop(lambda i, n: i < 4, lambda i, n: (i + 1, n + i), [0, 0])
        >>> int(i), int(total)
        (4, 6)
    """
    state = _values(tuple(loop_vars))
    most = None if maximum_iterations is None else int(maximum_iterations)
    if probing.is_on():
        return _probed_loop(body, state, loop_vars, shape_invariants)
    done = 0
    while (most is None or done < most) and is_true(cond(*state)):
        state = _next_state(body(*state))
        done += 1
    return list(state) if isinstance(loop_vars, list) else state


def _next_state(found: Any) -> tuple[Any, ...]:
    return _values(tuple(found) if isinstance(found, (list, tuple)) else (found,))


def _probed_loop(body: Callable[..., Any], state: Any, given: Any, invariants: Any) -> Any:
    """The variables after one step, with the shapes that may change as placeholders."""
    after = _next_state(body(*state))
    if invariants is not None:
        shapes = flatten(invariants)
        leaves = flatten(after)
        if len(shapes) == len(leaves):
            made = [_invariant(leaf, s) for leaf, s in zip(leaves, shapes, strict=True)]
            after = pack_sequence_as(after, made)
    return list(after) if isinstance(given, list) else after


def _invariant(leaf: Any, shape: Any) -> Any:
    if _is_kept(leaf):
        return leaf
    return probing.array(TensorShape(getattr(shape, "shape", shape)), leaf.dtype).view(Tensor)


def scan(
    fn: Callable[..., Any],
    elems: Any,
    initializer: Any = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """Call a function of (last result, element) with each element along the first dimension, and stack its results.

    Args:
        fn: the function.
        elems: tensors, or a structure of them.
        initializer: the "last result" of the first call; None: the first element.
        reverse: begin with the last element.
        parallel_iterations, back_prop, swap_memory, infer_shape, name: ignored.

    Example:
        >>> import penstock.tf as tf
        >>> tf.scan(lambda total, x: total + x, tf.constant([1, 2, 3])).numpy()
        array([1, 3, 6], dtype=int32)
    """
    results = list(_steps(fn, elems, initializer, reverse))
    if reverse:
        results.reverse()
    return map_structure(lambda *leaves: np.stack(leaves).view(Tensor), *results)


def foldl(fn: Callable[..., Any], elems: Any, initializer: Any = None, **_: Any) -> Any:
    """Call a function of (last result, element) with each element along the first dimension, and return its last
    result."""
    return list(_steps(fn, elems, initializer, False))[-1]


def foldr(fn: Callable[..., Any], elems: Any, initializer: Any = None, **_: Any) -> Any:
    """Like `foldl`, but beginning with the last element."""
    return list(_steps(fn, elems, initializer, True))[-1]


def _steps(fn: Callable[..., Any], elems: Any, initializer: Any, reverse: bool) -> Any:
    parts = map_structure(convert_to_tensor, elems)
    rows = [pack_sequence_as(parts, row) for row in zip(*flatten(parts), strict=True)]
    if reverse:
        rows.reverse()
    if initializer is None:
        state, rows = rows[0], rows[1:]
        yield state
    else:
        state = _values(initializer)
    for row in rows:
        state = _values(fn(state, row))
        yield state


def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str | None = None,
) -> Any:
    """Call the function of the first condition that holds, and return its result.

    Args:
        pred_fn_pairs: pairs of a condition and a function, or a dict of them.
        default: the function to call if no condition holds; None: the last function.
        exclusive: raise an error if two conditions hold.
        strict, name: ignored.

    Raises:
        InvalidArgumentError: two conditions hold with `exclusive`, or none without a default.

    Example:
        >>> import penstock.tf as tf
        >>> tf.case([(tf.constant(False), lambda: 1)], default=lambda: 2)
        2
    """
    pairs = list(pred_fn_pairs.items() if isinstance(pred_fn_pairs, Mapping) else pred_fn_pairs)
    if probing.is_on():
        return _probed_case([*(function for _, function in pairs), *([default] if default else [])])
    holding = [function for condition, function in pairs if is_true(condition)]
    if exclusive and len(holding) > 1:
        raise InvalidArgumentError(None, None, "Input error: more than one condition is True")
    if holding:
        return holding[0]()
    if default is None:
        raise InvalidArgumentError(None, None, "Input error: None of conditions evaluated as True")
    return default()


def _probed_case(functions: list[Callable[[], Any]]) -> Any:
    """The result of one of the first two functions: see `probing`."""
    return functions[1 if not probing.decision() and len(functions) > 1 else 0]()


def switch_case(
    branch_index: Any, branch_fns: Any, default: Any = None, name: str | None = None
) -> Any:
    """Call the function with this number and return its result. If there is none, call the default or the last
    function."""
    if isinstance(branch_fns, Mapping) or (branch_fns and isinstance(branch_fns[0], tuple)):
        functions = dict(branch_fns)
    else:
        functions = dict(enumerate(branch_fns))
    last = functions[max(functions)] if default is None else default
    return functions.get(int(branch_index), last)()
