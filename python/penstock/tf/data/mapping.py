"""The user's functions on elements: map, filter, take_while, scan.

A function that only parses and chooses (see `penstock.tf.recognised`) is executed by kernels, block by block and on
threads. Any other function is called with each element, on threads if requested.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock.engine.pipeline import Tasks, default_threads, in_order
from penstock.engine.threads import users_code
from penstock.tf.data.blocks import AnyBlock, Batches, Block, Blocks
from penstock.tf.data.failures import Failure, Raising, guarded
from penstock.tf.data.op import (
    AUTOTUNE,
    UNKNOWN,
    Op,
    Stream,
    as_element,
    call,
    elements,
    mapped,
    parallel_calls,
    specs_of,
)
from penstock.tf.data.parsing_blocks import Plan, plan_of
from penstock.tf.data.tracing import traced
from penstock.tf.graphs import opened
from penstock.tf.nest import flatten
from penstock.tf.recognised import Recording, record
from penstock.tf.shapes import TensorSpec
from penstock.tf.tensor import Tensor

_MOST_THREADS = 32
_MOST_TASK = 256
_TRIED = 4
_SLOW_S, _QUICK_S = 0.001, 0.0001


class Map(Op):
    """A function of each element."""

    def __init__(
        self, source: Op, function: Callable[..., Any], num_parallel_calls: Any = None
    ) -> None:
        if not callable(function):
            raise TypeError(f"map_func must be callable, not {function!r}")
        self.source = source
        self.function = function
        self.calls = parallel_calls(num_parallel_calls)
        self._traced: Any = None
        self._recordings: dict[tuple[bool | None, ...], Recording | None] = {}

    def recording(self, structure: Any, kinds: tuple[bool | None, ...]) -> Recording | None:
        """The recorded steps of the function, if it only parses and chooses. To record them, the function is called
        once."""
        if kinds not in self._recordings:
            self._recordings[kinds] = record(self.function, structure, call, list(kinds))
        return self._recordings[kinds]

    def open(self) -> Stream:
        stream, run = self._joined()
        if run is None:
            return stream
        if self.calls is None:
            return map(run, elements(stream))
        threads = default_threads() if self.calls == AUTOTUNE else min(self.calls, _MOST_THREADS)
        return Trying(run, elements(stream), threads)

    def _joined(self) -> tuple[Stream, Callable[[Any], Any] | None]:
        """A stream, and the function to call with its elements; no function if kernels have already executed it.
        Consecutive maps on threads are joined into one function, so that they need threads only once."""
        before: Callable[[Any], Any] | None = None
        if (
            isinstance(self.source, Map)
            and self.calls is not None
            and self.source.calls is not None
        ):
            stream, before = self.source._joined()
        else:
            stream = self.source.open()
        if before is None and isinstance(stream, Blocks):
            kinds = tuple(stream.batched if string else None for string in stream.strings)
            recording = self.recording(stream.structure, kinds)
            plan = None if recording is None else plan_of(recording)
            if plan is not None:
                return self._planned(stream, plan), None
        own = mapped(opened(self.function))
        return stream, own if before is None else _after(before, own)

    def _planned(self, stream: Blocks, plan: Plan) -> Stream:
        strings = tuple(plan.is_string(leaf, stream.strings) for leaf in range(plan.num_leaves))
        is_varying = stream.is_varying or plan.is_varying
        if plan.parses:
            done: Iterator[Any] = in_order(
                [lambda: guarded(stream.blocks)],
                lambda block: self._parsed(block, stream, plan),
                lambda block: block.nbytes,
                None,
                ahead=True,
            )
        else:
            done = (d for b in guarded(stream.blocks) for d in self._parsed(b, stream, plan))
        return Blocks(
            Raising(done),
            plan.result,
            strings,
            batched=stream.batched,
            is_ahead=plan.parses,
            is_varying=is_varying,
        )

    def _parsed(self, block: Any, stream: Blocks, plan: Plan) -> Iterator[Any]:
        """A block with the columns of the result. Elements without a result become failures."""
        if type(block) is Failure:
            yield block
            return
        rows = block.rows if isinstance(block, Batches) else block
        try:
            columns = plan.columns(rows.columns)
        except Exception as error:
            # The function is called with each record, to find the bad record and its error.
            good, failure = self._until_error(block, stream)
            if failure is None:
                raise
            if good:
                yield from self._parsed(block.sliced(0, good), stream, plan)
            failure.__context__ = error
            yield Failure(failure)
            if good + 1 < len(block):
                yield from self._parsed(block.sliced(good + 1, len(block)), stream, plan)
            return
        done = Block(columns, len(rows))
        yield Batches(done, block.offsets) if isinstance(block, Batches) else done

    def _until_error(self, block: AnyBlock, stream: Blocks) -> tuple[int, Exception | None]:
        """The number of elements of a block before the first error, and that error."""
        for number, element in enumerate(stream.like(iter((block,))).elements()):
            try:
                call(self.function, element)
            except Exception as error:
                return number, error
        return len(block), None

    def cardinality(self) -> int:
        return self.source.cardinality()

    def spec(self) -> Any:
        known = self.source.spec()
        leaves = flatten(known, lists=False)
        kinds = tuple(
            s.shape.rank == 1
            if type(s) is TensorSpec and s.dtype == object and s.shape.rank in (0, 1)
            else None
            for s in leaves
        )
        recording = self.recording(known, kinds)
        plan = None if recording is None else plan_of(recording)
        if plan is not None:
            return plan.specs(leaves)
        if self._traced is None:
            self._traced = traced(mapped(self.function), known)
        return super().spec() if self._traced is None else self._traced


def _after(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda element: second(first(element))


class _Work:
    """The state that the threads of a Parallel share. It has no reference to the consumer, which may be dropped."""

    def __init__(self, run: Callable[[Any], Any], source: Iterator[Any]) -> None:
        self._run = run
        self._source = source
        self._tasks: Tasks[Any] = Tasks(_MOST_TASK)

    def stream(self) -> Iterator[list[Any]]:
        source, self._source = self._source, iter(())
        yield from self._tasks.of(guarded(source))

    def do(self, task: list[Any]) -> Iterator[list[Any]]:
        begun, done = time.perf_counter(), []
        with users_code():
            for element in task:
                if type(element) is Failure:
                    done.append(element)
                    continue
                try:
                    done.append(self._run(element))
                except Exception as error:
                    done.append(Failure(error))
        self._tasks.lasted(time.perf_counter() - begun, len(task))
        yield done


class Parallel:
    """A function of elements, called on threads, with results in the order of the elements. An error takes the place of
    its element, and the next elements follow."""

    def __init__(self, run: Callable[[Any], Any], source: Iterator[Any], threads: int) -> None:
        work = _Work(run, source)
        self._results = in_order([work.stream], work.do, _held_bytes, threads, ahead=True)
        self._ready: Iterator[Any] = iter(())

    def __iter__(self) -> Parallel:
        return self

    def __next__(self) -> Any:
        value = next(self._ready, self)
        while value is self:
            self._ready = iter(next(self._results))
            value = next(self._ready, self)
        if type(value) is Failure:
            value.throw()
        return value

    def close(self) -> None:
        """Stop the threads."""
        self._results.close()


class Trying:
    """A function of elements. It is called here for the first few elements, and on threads for the others, unless it is
    so quick that threads, which share the GIL, would only slow it down."""

    def __init__(self, run: Callable[[Any], Any], source: Iterator[Any], threads: int) -> None:
        self._run, self._source, self._threads = run, source, threads
        self._times: list[float] = []
        self._rest: Iterator[Any] | None = None

    def __iter__(self) -> Trying:
        return self

    def __next__(self) -> Any:
        if self._rest is not None:
            return next(self._rest)
        element = next(self._source)
        begun = time.perf_counter()
        try:
            return self._run(element)
        finally:
            self._times.append(time.perf_counter() - begun)
            self._decide()

    def _decide(self) -> None:
        """After enough measured calls, choose whether threads call the function for the other elements."""
        tried = len(self._times)  # the first call may be slow for other reasons
        if (tried > 1 and self._times[-1] > _SLOW_S) or tried == _TRIED:
            is_quick = min(self._times) < _QUICK_S
            quick = map(self._run, self._source)
            self._rest = quick if is_quick else Parallel(self._run, self._source, self._threads)

    def close(self) -> None:
        """Stop the threads."""
        if isinstance(self._rest, Parallel):
            self._rest.close()


def _held_bytes(done: list[Any]) -> int:
    """The approximate size of the elements in bytes, estimated from the first."""
    leaves = flatten(done[0], lists=False)  # a failure is its own only leaf
    return (64 + sum(getattr(leaf, "nbytes", 64) for leaf in leaves)) * len(done)


# -- predicates -----------------------------------------------------------------------------------


def _decider(predicate: Callable[..., Any]) -> Callable[[Any], bool]:
    def decide(element: Any) -> bool:
        answer = predicate(*element) if isinstance(element, tuple) else predicate(element)
        if answer is True or answer is False:
            return answer
        if np.ndim(answer) or getattr(answer, "dtype", None) != np.bool_:
            raise ValueError(
                "Invalid `predicate`. `predicate` must return a `tf.bool` scalar tensor, but its "
                f"return value was {answer!r}."
            )
        return bool(answer)

    return decide


class Filter(Op):
    """The elements for which a function returns True."""

    passes_on = True

    def __init__(self, source: Op, predicate: Callable[..., Any]) -> None:
        self.source = source
        self.predicate = predicate

    def open(self) -> Stream:
        stream = self.source.open()
        if isinstance(stream, Blocks):
            return stream.like(self._blocks(stream, self._decider()))
        return filter(self._decider(), stream)

    def _decider(self) -> Callable[[Any], bool]:
        return _decider(opened(self.predicate))

    def _blocks(self, blocks: Blocks, decide: Callable[[Any], bool]) -> Iterator[AnyBlock]:
        for block in blocks:
            kept: list[int] = []
            failure = None
            for number, element in enumerate(blocks.like(iter((block,))).elements()):
                try:
                    if decide(element):
                        kept.append(number)
                except Exception as error:
                    failure = error
                    break
            if len(kept) == len(block):
                yield block
            elif kept:
                yield block.taken(np.array(kept))
            if failure is not None:
                raise failure

    def cardinality(self) -> int:
        return UNKNOWN

    def spec(self) -> Any:
        return self.source.spec()


class TakeWhile(Filter):
    """The elements before the first for which a function returns False."""

    def open(self) -> Stream:
        for_all = self._decider()

        def taken(values: Iterator[Any]) -> Iterator[Any]:
            for element in values:
                if not for_all(element):
                    return
                yield element

        return taken(elements(self.source.open()))


class Scan(Op):
    """A function from a state and an element to the next state and an output."""

    def __init__(self, source: Op, state: Any, function: Callable[..., Any]) -> None:
        self.source = source
        self.state = as_element(state)
        self.function = function

    def open(self) -> Stream:
        return self._run(elements(self.source.open()), opened(self.function))

    def _run(self, values: Iterator[Any], function: Callable[..., Any]) -> Iterator[Any]:
        state = self.state
        for element in values:
            made = function(state, element)
            if not isinstance(made, (tuple, list)) or len(made) != 2:
                raise TypeError(
                    "The `scan_func` must return a pair comprising the new state and the output value."
                )
            state = as_element(made[0])
            yield as_element(made[1])

    def cardinality(self) -> int:
        return self.source.cardinality()

    def spec(self) -> Any:
        pair = (specs_of(self.state), self.source.spec())
        found = traced(lambda given: as_element(self.function(*given)[1]), pair)
        return super().spec() if found is None else found


class Unique(Op):
    """The elements without repeats."""

    def __init__(self, source: Op) -> None:
        self.source = source

    def open(self) -> Stream:
        return self._run(elements(self.source.open()))

    def _run(self, values: Iterator[Any]) -> Iterator[Any]:
        seen: set[Any] = set()
        for element in values:
            key = tuple(
                (
                    np.shape(leaf),
                    tuple(np.ravel(leaf).tolist()) if isinstance(leaf, Tensor) else leaf,
                )
                for leaf in flatten(element, lists=False)
            )
            if key not in seen:
                seen.add(key)
                yield element

    def spec(self) -> Any:
        return self.source.spec()
