"""Text indexes that other libraries keep next to a file of a framed format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from penstock.framing.index.sidecar import Index


class TextIndex(ABC):
    """The text index of one library."""

    name: ClassVar[str]
    """The name of the index in `penstock.index(..., text=...)`."""

    @abstractmethod
    def path_for(self, data_path: str) -> str:
        """The path of the index for a data file."""
        ...

    @abstractmethod
    def lines(self, index: Index, first: int, last: int) -> str:
        """The lines for records [first, last)."""
        ...

    @abstractmethod
    def places(self, data: bytes) -> tuple[np.ndarray, np.ndarray | None]:
        """Parse an index: the starts of frames, and their sizes if the index has them, as uint64. Raises ValueError if
        the data is not such an index."""
        ...
