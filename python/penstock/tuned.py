"""Tuned sizes, each with the benchmarks (rows in `benchmarks/`) that depend on it.

To change a size, measure its benchmarks with both values on the same machine; see `benchmarks/NOTES.md`. Limits are in
`limits.py`. Sizes that a specification sets, or on which no benchmark depends, are where they are used.
"""

from __future__ import annotations

CHUNK_BYTES = 2 << 20
"""Plain bytes of a chunk. scan-small with two threads: 45 M records/s, and 29 with 1 MiB. gzip-read: 512 KiB is a
fifth slower, 4 and 8 MiB are not faster."""
LARGE_RECORD_BYTES = 16 << 10
"""From this mean size on, records are large: copying dominates the work. scan-large, tfrecord-tar."""
LARGE_CHUNK_BYTES = 4 << 20
"""Plain bytes of a chunk of large records. scan-large with two threads: 40 ms, and 50 with 8 MiB, which does not fit in
a shared cache."""
FIRST_WINDOW_BYTES = 256 << 10
"""The first window of a file, which all others wait for. scan-small, gzip-read (schema)."""
WINDOW_BYTES = 2 * CHUNK_BYTES
"""The other windows. Large ones need fewer handovers between threads. scan-small with two threads."""

SLICE_BYTES = 2 << 20
"""Arrow bytes that one task encodes. write-small: 0.5 and 1 MiB are not faster."""
SLICE_RECORDS = 16384
"""Records that one task encodes. write-small: 100 ms for a million records, and 108 with 8,192."""
LARGE_SLICE_BYTES = 8 << 20
"""SLICE_BYTES for large records. tfrecord-tar."""
WRITE_BYTES = 4 << 20
"""Bytes of one write, and its alignment. write-small-disk: 1 and 2 MiB are not faster; ext4 writes large folios."""

BUDGET_BYTES = 64 << 20
"""Decoded bytes that may wait for the consumer. memory-large."""
TASK_SECONDS = 0.004
"""Small jobs are grouped into tasks of this length. images-crop: 1,200 thread switches for 1,000 images, not 2,800."""

GZIP_INPUT_BYTES = 1 << 20
"""Compressed bytes of one read. gzip-read."""
GZIP_KEPT_BYTES = 4 << 20
"""Plain (uncompressed) bytes that are kept, so that the reader can go back. 16 MiB do not fit in the cache.
gzip-read."""
GZIP_GROUP_BYTES = 1 << 20
"""Plain bytes of small members that one call inflates. gzip-penstock."""

ARROW_WHOLE_BYTES = 32 << 20
"""A compressed batch up to this size is read as a whole: 300 MB of lz4 take 66 ms instead of 142, of zstd 176 instead
of 279 (not a benchmark of the suite)."""
ARROW_GROUP_BYTES = 4 << 20
"""Bytes of small batches that one task reads (not a benchmark of the suite; NOTES compares Arrow with pyarrow)."""
HDF5_GROUP_BYTES = 8 << 20
"""Bytes of chunks that one call unpacks. hdf5-gzip with 100 KB: 69.3 k/s, and 22.9 with one call for each chunk."""
BETON_CHUNK_BYTES = 8 << 20
"""Bytes of values in a chunk. beton-tfrecord, tar-beton."""
ARRAYRECORD_STEP_BYTES = 4 << 20
"""Bytes that one call unpacks, if chunks of one record each are taken. take-small (array_record)."""

SHUFFLE_BLOCK_BYTES = 64 << 20
"""Source bytes that one gather of a shuffled conversion reads. memory-large."""
LOADER_SPARED_BYTES = 256 << 20
"""Headroom for freed buffers and allocator caches, but at most half of memory_bytes. load-large, memory-large."""
LOADER_TOGETHER_RECORDS = 4096
"""The most records of several batches that one call reads. load-small."""
LOADER_TASK_BATCHES = 16
"""The most small batches that one task makes. load-small."""
