"""Random access to records, and building the index for it."""

from __future__ import annotations

from benchmarks.cases.case import Case, Goal

ARRAY_RECORD = "array_record:"
ARRAY_SEEK = "array_record: seek then read, group_size:1, uncompressed"
MAP_CRC = "limit: mmap slice and CRC32C"
PREAD_CRC = "limit: pread and CRC32C"

CASES = (
    Case(
        name="take-small",
        says="256 records at random, checksums verified by penstock; penstock, datasets, lance, "
        "h5py and parquet give columns, array_record gives undecoded bytes",
        size="small",
        limits={"": MAP_CRC, "penstock: pread": PREAD_CRC, ARRAY_SEEK: PREAD_CRC},
        goals=(
            Goal("penstock: pread", at_least=2, of=ARRAY_RECORD),
            Goal("penstock: mmap", at_least=3, of=ARRAY_RECORD),
        ),
    ),
    Case(
        name="take-large",
        says="the same with records of 100 KB",
        size="large",
        limits={"": MAP_CRC, "penstock: pread": PREAD_CRC, ARRAY_SEEK: PREAD_CRC},
        goals=(
            Goal("penstock: pread", at_least=2, of=ARRAY_RECORD),
            Goal("penstock: mmap", at_least=2, of=ARRAY_RECORD),
        ),
    ),
    Case(
        name="index-build-small",
        says="build and save the index of 1,000,000 small records",
        size="small",
        measure="seconds",
        limits={"": "limit: read() in 1 MB pieces"},
        goals=(Goal("penstock: index", at_most=0.3),),
    ),
    Case(
        name="index-build-large",
        says="build and save the index of 20,000 records of 100 KB",
        size="large",
        measure="seconds",
        limits={"": "limit: pread of every header"},
        goals=(Goal("penstock: index", at_most=0.1),),
    ),
)
