"""Reading whole files: raw, to columns, compressed, with and without checksums."""

from __future__ import annotations

from benchmarks.cases.case import Case, Goal

CRC = "limit: CRC32C of a buffer"
READ_CRC = "limit: read() then CRC32C"

CASES = (
    Case(
        name="scan-small",
        says="every record as bytes, both checksums verified; 1,000,000 records of 150 bytes",
        size="small",
        limits={"": CRC},
        goals=(
            Goal("penstock: 1 thread", at_least=8),
            Goal("penstock: 2 threads", at_least=14),
        ),
    ),
    Case(
        name="scan-large",
        says="the same, 20,000 records of 100 KB",
        size="large",
        limits={
            "": READ_CRC,
            "penstock: 1 thread, mmap, stays open": CRC,
            "penstock: 2 threads, mmap, stays open": CRC,
            "penstock: 1 thread, mmap": "limit: mmap then CRC32C",
            "penstock: 2 threads, mmap": "limit: mmap then CRC32C",
            "google_crc32c: Python loop over mmap": "limit: mmap then CRC32C",
        },
        goals=(
            # For this limit, the buffer is mapped once, before all rounds.
            Goal("penstock: 1 thread, mmap, stays open", at_least=0.9, of=CRC),
            Goal("penstock: 2 threads, mmap, stays open", at_least=1.6 * 0.9, of=CRC),
            Goal("penstock: 1 thread", at_least=0.9, of=READ_CRC),
            Goal("penstock: 2 threads", at_least=1.6 * 0.9, of=READ_CRC),
        ),
    ),
    Case(
        name="parse-small",
        says="Examples to dense columns in batches of 1,024 rows",
        size="small",
        limits={"": CRC},
        goals=(
            Goal("penstock: 1 thread", at_least=6),
            Goal("penstock: 2 threads", at_least=12),
        ),
    ),
    Case(
        name="gzip-read",
        says="GZIP as TensorFlow writes it, to columns (penstock) or undecoded (the others); "
        "GB/s of uncompressed bytes",
        size="small",
        limits={
            "": "limit: isal stream, 1 file, 1 thread",
            "penstock: 4 files, 2 threads": "limit: libdeflate, 4 files, 2 threads",
            "penstock: 4 files, 2 threads, undecoded": "limit: libdeflate, 4 files, 2 threads",
        },
        goals=(
            Goal(
                "penstock: 1 file, 2 threads",
                at_least=0.8,
                of="limit: isal stream, 1 file, 1 thread",
            ),
            Goal("penstock: 1 file, 2 threads", at_least=3),
            Goal("penstock: 4 files, 2 threads", at_least=5),
        ),
    ),
    Case(
        name="gzip-penstock",
        says="GZIP as penstock writes it (many members), to columns",
        size="small",
        limits={
            "": "limit: libdeflate, 4 files, 2 threads",
            "penstock: 1 thread": "limit: libdeflate, 1 file, 1 thread",
        },
        goals=(Goal("penstock: 2 threads", at_least=1.7, of="penstock: 1 thread"),),
    ),
    Case(
        name="checksum-cost",
        says="decoding to columns on one thread with and without checksums",
        size="small",
        goals=(Goal("penstock: checksums all", at_least=1 / 1.10, of="penstock: checksums none"),),
    ),
)
