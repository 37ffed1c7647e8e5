"""The files that a manifest lists. Its facts replace requests: nothing is opened before it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import formats
from penstock.contract.format import Chunk
from penstock.datasets._unlisted import Cut
from penstock.datasets.files import Files
from penstock.errors import StaleIndexError, command, shown
from penstock.framing.format import FramedFormat
from penstock.manifests.manifest import Manifest, Paths
from penstock.storage.base import FileState, Source
from penstock.storage.skipped import SkippedFile

_PART_BYTES = 2 << 20
"""About the size of a chunk of most formats."""


class ManifestFiles(Files):
    """The shards of a manifest, by number."""

    @property
    def manifest(self) -> Manifest:
        """The open manifest."""
        assert isinstance(self.paths, Paths), "the caller looked"
        return self.paths.manifest

    def _find_schema(self) -> pa.Schema:
        if self.types == "given" or self.options.format_options:
            return super()._find_schema()  # the caller's options have priority
        footer = self.manifest.footer
        if self.overlays is not None or self._hive is not None:
            return super()._find_schema()
        self._settled = footer.schema
        self._num_kept = self.manifest.num_shards if footer.types == "kept" else 0
        self.types: Any = footer.types
        return footer.schema

    def _source_of(self, shard: int) -> Source:
        return self.manifest.open(shard, mmap=self.options.mmap)

    @property
    def _trusts_counts(self) -> bool:
        """Whether the record counts of the manifest are used. If damage is skipped, there may be fewer records."""
        return self.options.damage == "error"

    @property
    def firsts(self) -> np.ndarray:
        if self._firsts is None:
            self._firsts = self.manifest.firsts if self._trusts_counts else super().firsts
        return self._firsts

    @property
    def num_records(self) -> int:
        return self.manifest.num_records if self._trusts_counts else super().num_records

    def num_records_of(self, shard: int) -> int:
        if self._trusts_counts:
            return self.manifest.value(shard, "records")
        return super().num_records_of(shard)

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.manifest.locate(numbers) if self._trusts_counts else super().locate(numbers)

    def check_count(self, shard: int) -> None:
        self.check_scanned(shard, self.reader(shard).num_records if self._trusts_counts else 0)

    def check_scanned(self, shard: int, num_records: int) -> None:
        if not self._trusts_counts:
            return
        said, found = self.manifest.value(shard, "records"), num_records
        if said != found:
            raise StaleIndexError(
                f"the shard does not have the number of records that {shown(self.manifest.path)} lists",
                file=shown(self.paths[shard]),
                expected=said,
                found=found,
                hint=command("penstock", "manifest", shown(self.manifest.path), "--refresh"),
            )

    @property
    def chunk_lengths(self) -> Sequence[int]:
        """Equal parts of the shards, because the true chunks are known only after opening each."""
        if not self._trusts_counts:
            return super().chunk_lengths
        return self.manifest.parts(_PART_BYTES).tolist()

    def sizes(self) -> list[int]:
        return [
            size for group in self.manifest.stored() for size in group.column("bytes").to_pylist()
        ]

    def file_state(self, shard: int) -> FileState:
        return self.manifest.expected(shard)

    def cut(self, shard: int, target_bytes: int) -> list[Cut]:
        """Equal parts, because the spans are known only after opening the file. If its format does not store the
        positions of its records, it needs an index."""
        kind = formats.by_name(self.format_name(shard))
        is_bare = isinstance(kind, FramedFormat) or kind.info.keeps_positions
        size, records = self.num_bytes(shard), self.num_records_of(shard)
        count = min(-(-size // target_bytes), records)
        if count < 2 or (is_bare and self.manifest.value(shard, "index") is None):
            return []
        edges = [records * n // count for n in range(count + 1)]
        return [Cut(Chunk(a, b - a, 0, 0), size * (b - a) // records) for a, b in pairwise(edges)]

    def num_bytes(self, shard: int) -> int:
        return self.manifest.value(shard, "bytes")

    def format_name(self, shard: int) -> str:
        return self.manifest.value(shard, "format")

    def checksum(self, shard: int) -> int:
        return self.manifest.value(shard, "checksum")

    @property
    def total_bytes(self) -> int:
        return self.manifest.footer.num_bytes

    @property
    def known_fingerprint(self) -> str:
        is_plain = self._trusts_counts and self.overlays is None and self._hive is None
        return self.manifest.footer.fingerprint if is_plain else ""

    def skipped(self, *, opened_only: bool = False) -> Iterator[SkippedFile]:
        """Nothing: a manifest lists data only."""
        del opened_only
        return iter(())
