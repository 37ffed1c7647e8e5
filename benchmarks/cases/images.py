"""Images for training: from encoded images in memory to batches of numbers."""

from __future__ import annotations

from benchmarks.cases.case import Case, Goal

CASES = (
    Case(
        name="images-crop",
        says="4,000 JPEGs of 68 KB in memory: random resized crop 224, flip, uint8 batches of 256",
        size="",
        limits={
            "1 thread": "images_limit: full decode, 1 thread",
            "2 threads": "images_limit: full decode, 2 threads",
        },
        goals=(
            Goal("penstock: 2 threads", at_least=1.5),
            Goal("penstock: 2 threads", at_least=1.0, of="images_limit: full decode, 2 threads"),
            Goal("penstock: 1 thread", at_least=1.0, of="images_limit: full decode, 1 thread"),
        ),
    ),
    *(
        Case(
            name=f"images-load-{name}",
            says=f"the same from {what}, shuffled, by whole loaders on 2 threads or workers",
            size="",
            limits={"": "images_limit: full decode, 2 threads"},
            goals=(
                Goal("penstock: 2 threads", at_least=1.5),
                Goal(
                    "penstock: 2 threads", at_least=1.0, of="images_limit: full decode, 2 threads"
                ),
                Goal(
                    "penstock: 2 threads",
                    at_least=0.95,
                    of="penstock: 2 threads, kernels in a loop",
                ),
            ),
        )
        for name, what in (("tfrecord", "a TFRecord"), ("tar", "a tar"), ("beton", "a .beton"))
    ),
    Case(
        name="images-pairs",
        says="4,000 JPEGs of 68 KB and their masks, palette PNGs, from a TFRecord, both cropped to 224: pictures and"
        " masks a second",
        size="",
        goals=tuple(
            Goal(
                f"penstock: {threads}, image and mask",
                at_least=0.9,
                of=f"penstock: {threads}, image",
            )
            for threads in ("1 thread", "2 threads")
        ),
    ),
    Case(
        name="images-raw",
        says="4,000 images of 224 x 224 raw pixels to batches of 256",
        size="",
        goals=(Goal("penstock: 1 thread", at_least=0.8, of="images_limit: a copy"),),
    ),
)
