"""Sizes that were tuned, each with the rows of `benchmarks/` that it matters to.

Limits that protect (`limits.py`), sizes that a specification sets and round numbers that no row
depends on stay where they are used. Change a number here only with its rows measured side by
side; `benchmarks/NOTES.md` has the figures.
"""

from __future__ import annotations

CHUNK_BYTES = 2 << 20
"""Plain bytes of a chunk. scan-small by two threads: 29 to 45 M/s from 1 MiB; gzip-read: 512 KiB a fifth slower,
4 and 8 MiB no faster."""
LARGE_RECORD_BYTES = 16 << 10
"""Mean size from which records count as large: there is little to do for each but to copy it. scan-large,
tfrecord-tar."""
LARGE_CHUNK_BYTES = 4 << 20
"""Plain bytes of a chunk of large records. scan-large by two threads: 50 to 40 ms from 8 MiB, which leaves a
shared cache."""
FIRST_WINDOW_BYTES = 256 << 10
"""The first window of a file, for which all others wait. scan-small, gzip-read (schema)."""
WINDOW_BYTES = 2 * CHUNK_BYTES
"""The other windows: fewer handovers between threads. scan-small by two threads."""

SLICE_BYTES = 2 << 20
"""Arrow bytes that one task encodes. write-small: 0.5 and 1 MiB bring nothing."""
SLICE_RECORDS = 16384
"""Records that one task encodes. write-small: 108 to 100 ms a million from 8,192."""
LARGE_SLICE_BYTES = 8 << 20
"""The same of large records. tfrecord-tar."""
WRITE_BYTES = 4 << 20
"""Bytes of one write, aligned to this. write-small-disk: 1 and 2 MiB are no faster; ext4 writes
large folios."""

BUDGET_BYTES = 64 << 20
"""Decoded bytes that may wait for the consumer. memory-large."""
TASK_SECONDS = 0.004
"""Small jobs are grouped into tasks of this length. images-crop: 2,800 to 1,200 switches a thousand images."""

GZIP_INPUT_BYTES = 1 << 20
"""Compressed bytes that are read at once. gzip-read."""
GZIP_KEPT_BYTES = 4 << 20
"""Plain bytes kept to look back at: 16 MiB leave the cache. gzip-read."""
GZIP_GROUP_BYTES = 1 << 20
"""Plain bytes of small members that are inflated by one call. gzip-penstock."""

ARROW_WHOLE_BYTES = 32 << 20
"""A compressed batch up to this size is read at once: 300 MB of lz4 take 66 instead of 142 ms, zstd 176 instead of
279 (no row of the suite)."""
ARROW_GROUP_BYTES = 4 << 20
"""Small batches that one task reads (no row of the suite; NOTES has Arrow beside pyarrow)."""
HDF5_GROUP_BYTES = 8 << 20
"""Chunks that one call unpacks. hdf5-gzip of 100 KB: 22.9 to 69.3 k/s from one call a chunk."""
BETON_CHUNK_BYTES = 8 << 20
"""Values of a chunk. beton-tfrecord, tar-beton."""
ARRAYRECORD_STEP_BYTES = 4 << 20
"""Picked bytes of files with one record a chunk that are unpacked by one call. take-small (array_record)."""

SHUFFLE_BLOCK_BYTES = 64 << 20
"""Source bytes that one gather of a shuffled conversion stands for. memory-large."""
LOADER_SPARED_BYTES = 256 << 20
"""Headroom for freed buffers and allocator caches: this much, or half of memory_bytes if that is less. load-large, memory-large."""
LOADER_TOGETHER_RECORDS = 4096
"""The most records of several batches that one call reads. load-small."""
LOADER_TASK_BATCHES = 16
"""The most small batches that a thread makes in one task. load-small."""
