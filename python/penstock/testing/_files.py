"""What the laws of a format write and open."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

import penstock as ps
from penstock import formats
from penstock.contract.format import Options, Reader
from penstock.contract.opening import open_shard
from penstock.storage.places import storage_of

_CHUNKS, _MOST_RECORDS = 3, 16_000


class LawFiles:
    """The format, and the files that the laws write."""

    format: ClassVar[str]
    """The name of the format."""
    num_records: ClassVar[int] = 1000

    def table(self, num_records: int) -> pa.Table:
        """Return records that the format holds as they are, the same each time. Override it for a format that does not
        hold numbers, bytes and lists."""
        rng = np.random.default_rng(0)
        return pa.table(
            {
                "id": pa.array(np.arange(num_records)),
                "score": pa.array(rng.standard_normal(num_records).astype(np.float32)),
                "text": pa.array(
                    [rng.bytes(n % 90) + b"." for n in range(num_records)], pa.binary()
                ),
                "tokens": pa.array(
                    [list(range(n % 4 + 2)) for n in range(num_records)], pa.list_(pa.int64())
                ),
            }
        )

    similar: ClassVar[tuple[str, ...]] = ()
    """Formats that have the same bytes at the start of a file, so that only the name of a file tells them apart."""

    def at(self, path: Any) -> Any:
        """The file with this path. Override it to run the laws in another place than this machine: it then returns what
        has these members of a `Path`: `/`, `name`, `suffix`, `parent`, `is_file`, `exists`, `read_bytes`, `write_bytes`,
        `unlink`, `rglob("*")`. Pass the laws such an object as `tmp_path`."""
        return Path(path)

    def write(self, folder: Path, table: pa.Table, name: str = "a") -> str:
        """Write a shard, and return its path."""
        ending = formats.by_name(self.format).info.extensions[0]
        made = ps.write(
            table, folder / f"{name}{ending}", format=self.format, index=False, overwrite=True
        )
        return made.paths[0]

    def open(self, path: Any, folder: Path, **options: Any) -> ps.Dataset:
        """Open shards, with their indexes in a folder of their own."""
        return ps.open(path, format=self.format, index=str(folder / "indexes"), **options)

    def reader(self, path: str, **options: Any) -> Reader:
        """Open a shard as the verbs do, without a dataset."""
        options = {"index": "never"} | options
        return open_shard(
            formats.by_name(self.format), storage_of(path).source(path), Options(**options)
        )

    def several(self, folder: Path) -> tuple[str, pa.Table]:
        """Write a shard of several chunks, if a few thousand records make several, and return its path and records."""
        num_records = self.num_records
        while True:
            table = self.table(num_records)
            path = self.write(folder, table, "several")
            with closing(self.reader(path)) as reader:
                enough = sum(1 for _ in reader.chunks()) >= _CHUNKS
            if enough or num_records >= _MOST_RECORDS or table.num_rows < num_records:
                return path, table
            num_records *= 4
