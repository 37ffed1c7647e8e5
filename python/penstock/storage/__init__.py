"""Reads and writes the bytes of files. The names below are public; the modules are internal to penstock."""

from __future__ import annotations

from penstock.storage._memory import MemoryStorage
from penstock.storage.base import Sink, Source, Storage
from penstock.storage.folder import Folder
from penstock.storage.local import LocalStorage
from penstock.storage.source_views import SourceView

__all__ = ["Folder", "LocalStorage", "MemoryStorage", "Sink", "Source", "SourceView", "Storage"]
