"""Collects records until their group is full, and estimates their size in the file.

A group has up to 16 MiB of values, and its compressed size is known only after encoding. To limit the size of its
shards, a writer encodes waiting records early, only to learn their size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.columns.regroup import Regroup


class Waiting(Regroup):
    """A Regroup that can estimate the size of the records it holds."""

    _told_bytes = 0
    _told_weight = 1

    def num_bytes(self, size_of: Callable[[Any], int]) -> int:
        """Estimate the bytes of the waiting records in the file. `size_of` encodes a batch and returns its size. It is
        called again when the group has doubled. Until then, its last result is scaled, so that the same values are not
        encoded again and again."""
        if not self._num_waiting:
            return 0
        weight = self.bytes_waiting + self._num_waiting
        if not self._told_bytes or weight >= 2 * self._told_weight:
            # Join, because the size must not depend on how the batches were split.
            whole = pa.concat_batches(self._waiting) if self._schema.names else self._waiting[0]
            self._told_bytes, self._told_weight = size_of(whole), weight
        return self._told_bytes * weight // self._told_weight

    def _group(self) -> Any:
        self._told_bytes = 0
        return super()._group()
