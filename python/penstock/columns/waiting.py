"""Records that wait for their group to be whole, and what they will take in the file.

A group has up to 16 MiB of values, and how far these shrink is seen once they are encoded. So whoever cuts
shards by their bytes has them encoded before their time, for their size alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.columns.regroup import Regroup


class Waiting(Regroup):
    """A Regroup that can be asked for the size of what it holds."""

    _told_bytes = 0
    _told_weight = 1

    def num_bytes(self, size_of: Callable[[Any], int]) -> int:
        """What the records that wait will take, about; depends on them and on when it is asked.

        Args:
            size_of: the bytes of a batch in the file. Called again once there is twice as much of a group;
                until then the same share of the values is taken for it, so no value is encoded often.
        """
        if not self._num_waiting:
            return 0
        weight = self.bytes_waiting + self._num_waiting
        if not self._told_bytes or weight >= 2 * self._told_weight:
            # Joined, for how batches were cut must not change the size.
            whole = pa.concat_batches(self._waiting) if self._schema.names else self._waiting[0]
            self._told_bytes, self._told_weight = size_of(whole), weight
        return self._told_bytes * weight // self._told_weight

    def _group(self) -> Any:
        self._told_bytes = 0
        return super()._group()
