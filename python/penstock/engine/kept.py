"""Values that are kept for the next reads of this process, up to a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from penstock.engine.locks import Lock

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """The values that were put or read last. At least the last one is kept, whatever its size.

    Keys are (owner, part), where the owner is a number that no other owner has.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._used = 0
        self._values: OrderedDict[tuple[Any, Any], tuple[Value, int]] = OrderedDict()
        self._making: dict[tuple[Any, Any], Lock] = {}
        self._lock = Lock()

    def of(
        self, key: tuple[Any, Any], make: Callable[[], Value], size: Callable[[Value], int]
    ) -> Value:
        """The value of a key. If it is not kept, one thread makes it, and others that need it wait."""
        with self._lock:
            if (found := self.get(key)) is not None:
                return found
            turn = self._making.setdefault(key, Lock())
        try:
            with turn:
                if (found := self.get(key)) is None:
                    found = make()
                    self.put(key, found, size(found))
                return found
        finally:
            with self._lock:
                self._making.pop(key, None)

    def get(self, key: tuple[Any, Any]) -> Value | None:
        with self._lock:
            if (found := self._values.get(key)) is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: tuple[Any, Any], value: Value, num_bytes: int) -> None:
        with self._lock:
            self.drop(key)
            self._values[key] = value, num_bytes
            self._used += num_bytes
            while self._used > self._most and len(self._values) > 1:
                self.drop(next(iter(self._values)))

    def drop(self, key: tuple[Any, Any]) -> None:
        with self._lock:
            self._used -= self._values.pop(key, (None, 0))[1]

    def drop_all_of(self, owner: Any) -> None:
        with self._lock:
            for key in [key for key in self._values if key[0] == owner]:
                self.drop(key)
