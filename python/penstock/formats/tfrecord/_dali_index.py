"""The text index that DALI's `tfrecord2idx` writes: `<file>.idx`, one line per record.

```
offset size        offset of the frame in the file; bytes of the whole frame: payload + 16
```
"""

from __future__ import annotations

import numpy as np

from penstock.framing.index.sidecar import Index
from penstock.framing.index.text import TextIndex


class DaliIndex(TextIndex):
    """See `penstock.index(..., text="dali")`."""

    name = "dali"

    def path_for(self, data_path: str) -> str:
        return data_path + ".idx"

    def lines(self, index: Index, first: int, last: int) -> str:
        starts = index.starts[first:last].tolist()
        sizes = (index.ends[first:last] - index.starts[first:last]).tolist()
        rows = zip(starts, sizes, strict=True)
        return "".join(f"{start} {size}\n" for start, size in rows)

    def places(self, data: bytes) -> tuple[np.ndarray, np.ndarray | None]:
        try:
            numbers = np.array(data.split(), dtype=np.bytes_).astype(np.uint64)
        except (ValueError, OverflowError):
            raise ValueError("it contains text that is not a number") from None
        if len(numbers) % 2:
            raise ValueError("the last line is truncated")
        return numbers[0::2], numbers[1::2]
