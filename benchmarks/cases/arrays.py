"""Files of arrays and ArrayRecord files, read in order and at random, by penstock and by their own libraries."""

from __future__ import annotations

from benchmarks.cases.case import BEST_RIVAL, Case, Goal

EQUAL = 0.95
ROWS = {"small": "1,000,000 rows of 80 bytes", "large": "20,000 of 100 KB"}
FORMS = {
    "hdf5-plain": "contiguous HDF5",
    "hdf5-gzip": "HDF5 in chunks of gzip",
    "hdf5-lzf": "HDF5 in chunks of lzf",
    "npy": "one array of an npy file",
    "npz": "the arrays of an npz file",
    "npz-deflated": "the arrays of a deflated npz file",
    "arrayrecord": "an ArrayRecord file of one record a group",
}
TAKE_RIVALS = {
    "": {"pread": BEST_RIVAL, "mmap": BEST_RIVAL},
    "npy": {
        "pread": "arrays_rivals: np.fromfile",
        "mmap": "arrays_rivals: mapped, as record batches",
    },
    # These arrays are in memory: they were read before the clock started.
    "npz": dict.fromkeys(("pread", "mmap"), "arrays_rivals: np.load for each batch"),
}

CASES = (
    *(
        Case(
            name=f"{form}-{size}",
            says=f"{what}, {rows}, as columns",
            size=size,
            goals=(Goal("penstock: 2 threads", at_least=EQUAL),),
        )
        for form, what in FORMS.items()
        for size, rows in ROWS.items()
    ),
    *(
        Case(
            name=f"{form}-take-{size}",
            says=f"{what}, 256 rows at random ({rows})",
            size=size,
            goals=tuple(
                Goal(f"penstock: {row}", at_least=EQUAL, of=rival)
                for row, rival in TAKE_RIVALS.get(form, TAKE_RIVALS[""]).items()
            ),
        )
        for form, what in FORMS.items()
        if form != "npz-deflated"
        for size, rows in ROWS.items()
    ),
    *(
        Case(
            name=f"beton-raw{suffix}",
            says=f".beton, 2,000 raw images of 224 x 224, {how}, batches of 256 by loaders",
            size="",
            goals=tuple(
                Goal(f"penstock: {row}", at_least=EQUAL, of=f"images_torch: FFCV, {row}")
                for row in ("1 thread", "1 thread, mmap", "2 threads", "2 threads, mmap")
            ),
        )
        for suffix, how in (("", "in order"), ("-shuffled", "shuffled"))
    ),
)
