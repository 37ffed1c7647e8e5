"""`penstock.open` imports the formats while it waits for a storage with slow access."""

from __future__ import annotations

from threading import Event

import pytest

import penstock as ps
from penstock import formats
from penstock.storage import MemoryStorage
from penstock.storage.base import Source


class Slow(MemoryStorage):
    reads_at_once = 4

    def __init__(self) -> None:
        super().__init__()
        self.asked = Event()

    def source(self, path: str, *, mmap: bool = False) -> Source:
        self.asked.set()
        return super().source(path, mmap=mmap)


def test_a_slow_storage_is_asked_before_all_formats_are_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = Slow()
    ps.write({"id": [1, 2]}, "a.msgpack", storage=storage)
    storage.asked.clear()
    was_asked: list[bool] = []
    imported = vars(formats)["_import_own"]

    def wait() -> object:
        was_asked.append(storage.asked.wait(20))
        return imported()

    monkeypatch.delitem(vars(formats), "FORMATS")
    monkeypatch.setattr(formats, "_import_own", wait)
    assert ps.open("a.msgpack", storage=storage)[1] == {"id": 2}
    assert was_asked[0]
    assert formats.by_name("msgpack") in formats.FORMATS
