r"""MXNet's text index of a RecordIO file: `x.idx` next to `x.rec`, one line per record, in file order.

```
key \t offset      any text without a tab; offset of the record's first magic
```

More columns, CRLF and a missing last line break are accepted, as in MXNet. The keys that penstock writes are the
numbers of the records. Source: MXIndexedRecordIO of MXNet 1.9.1.
"""

from __future__ import annotations

import os

import numpy as np

from penstock.framing.index.sidecar import Index
from penstock.framing.index.text import TextIndex


class MXNetIndex(TextIndex):
    """See `penstock.index(..., text="mxnet")`."""

    name = "mxnet"

    def path_for(self, data_path: str) -> str:
        return os.path.splitext(data_path)[0] + ".idx"

    def lines(self, index: Index, first: int, last: int) -> str:
        starts = index.starts[first:last].tolist()
        return "".join(f"{first + n}\t{start}\n" for n, start in enumerate(starts))

    def places(self, data: bytes) -> tuple[np.ndarray, np.ndarray | None]:
        rows = data.removesuffix(b"\n").split(b"\n") if data else []
        words = [row.split(b"\t") for row in rows]
        if any(len(row) < 2 for row in words):
            raise ValueError("a line is not a key, a tab and an offset")
        try:
            starts = np.array([row[1].strip() for row in words], dtype=np.bytes_).astype(np.uint64)
        except (ValueError, OverflowError):
            raise ValueError("an offset is not a number") from None
        return starts, None
