"""What compares an array of a file with its checksum."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np


class Check(ABC):
    """Compares an array with its checksum, which takes all its bytes."""

    @abstractmethod
    def saw(self, start: int, values: np.ndarray) -> None:
        """Note that bytes (uint8) were read, starting at `start`. Raise ChecksumError if they complete the array and
        the checksum does not match."""
        ...

    @abstractmethod
    def before_some(self) -> None:
        """Call `once` because a caller needs some records, unless reading the whole array is much slower than that."""
        ...

    @abstractmethod
    def once(self) -> None:
        """Read the whole array, unless its checksum was compared before. Raise ChecksumError if it does not match."""
        ...

    @abstractmethod
    def verify(self) -> None:
        """Read the whole array. Raise ChecksumError if the checksum does not match."""
        ...
