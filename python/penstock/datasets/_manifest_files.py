"""The files that a manifest lists. Its facts replace requests: nothing is opened before it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import formats
from penstock.columns.numbers import as_numpy
from penstock.contract.format import Chunk
from penstock.datasets._unlisted import Cut, Divided
from penstock.datasets.files import Files
from penstock.errors import StaleIndexError, command, shown
from penstock.framing.format import FramedFormat
from penstock.manifests.manifest import Listed, Manifest, Paths
from penstock.storage.base import Source
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
    def firsts(self) -> np.ndarray:
        if self._firsts is None:
            self._firsts = self.manifest.firsts if self.counts_records else super().firsts
        return self._firsts

    @property
    def num_records(self) -> int:
        return self.manifest.num_records if self.counts_records else super().num_records

    def num_records_of(self, shard: int) -> int:
        if self.counts_records:
            return self.manifest.value(shard, "records")
        return super().num_records_of(shard)

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.manifest.locate(numbers) if self.counts_records else super().locate(numbers)

    def check_count(self, shard: int) -> None:
        self.check_scanned(shard, self.reader(shard).num_records if self.counts_records else 0)

    def check_scanned(self, shard: int, num_records: int) -> None:
        if not self.counts_records:
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
        if not self.counts_records:
            return super().chunk_lengths
        return self.manifest.parts(_PART_BYTES).tolist()

    def states_of(self, shards: range, *, are_counted: bool) -> list[Listed]:
        found = self.manifest.listed(shards)
        if are_counted:
            return found
        return [one._replace(num_records=None) for one in found]

    def divided(self, target_bytes: int, *, are_counted: bool) -> Iterator[Divided]:
        """Parts are equal, because the spans are known only after opening a file. If its format does not store the
        positions of its records, it needs an index."""
        least = max(target_bytes, _PART_BYTES)
        for group in self.manifest.stored():
            sizes, records = group.column("bytes").to_pylist(), group.column("records").to_pylist()
            can_cut = (as_numpy(group.column("bytes")) > least) & _can_cut(group)
            for size, count, is_large in zip(sizes, records, can_cut.tolist(), strict=True):
                known = count if are_counted else None
                is_cut = is_large and are_counted
                yield Divided(size, known, _equal(size, count, least) if is_cut else ())

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
        is_plain = self.counts_records and self.overlays is None and self._hive is None
        return self.manifest.footer.fingerprint if is_plain else ""

    def skipped(self, *, opened_only: bool = False) -> Iterator[SkippedFile]:
        """Nothing: a manifest lists data only."""
        del opened_only
        return iter(())


def _can_cut(group: pa.RecordBatch) -> np.ndarray:
    """Whether shards can be cut, bool[num_rows]: their format stores the positions of records, or they have an index."""
    named = group.column("format").dictionary_encode()
    kinds = [formats.by_name(name) for name in named.dictionary.to_pylist()]
    is_bare = [isinstance(kind, FramedFormat) or kind.info.keeps_positions for kind in kinds]
    has_index = group.column("index").is_valid().to_numpy(zero_copy_only=False)
    return has_index | ~np.array(is_bare, bool)[named.indices.to_numpy()]


def _equal(size: int, records: int, part_bytes: int) -> list[Cut]:
    count = max(min(-(-size // part_bytes), records), 1)
    edges = [records * number // count for number in range(count + 1)]
    return [
        Cut(Chunk(first, end - first, 0, 0), size * (end - first) // max(records, 1))
        for first, end in pairwise(edges)
    ]
