"""Indexes that other libraries keep beside a file of a framed format, as text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from penstock.framing.index.sidecar import Index


class TextIndex(ABC):
    """The index of one such library."""

    name: ClassVar[str]
    """What it is called in `penstock.index(..., text=...)`."""

    @abstractmethod
    def path_for(self, data_path: str) -> str:
        """Its path."""
        ...

    @abstractmethod
    def lines(self, index: Index, first: int, last: int) -> str:
        """Its lines about some records."""
        ...

    @abstractmethod
    def places(self, data: bytes) -> tuple[np.ndarray, np.ndarray | None]:
        """Where it says that frames start, and how large they are if it does, uint64. Raises ValueError if the data is
        no such index."""
        ...
