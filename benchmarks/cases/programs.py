"""Programs written for TensorFlow, run by TensorFlow and by penstock.tf."""

from __future__ import annotations

from benchmarks.cases.case import Case, Goal

CASES = tuple(
    Case(
        name=name,
        says=says,
        size=size,
        goals=(Goal("penstock: penstock.tf", at_least=ratio, of="tensorflow: tensorflow"),),
    )
    for name, says, size, ratio in (
        ("tf-map-parse", "map(parse_single_example), then batch, 100,000 Examples", "small", 20),
        ("tf-batch-parse", "batch, then map(parse_example), 1,000,000 Examples", "small", 5),
        ("tf-iterate", "100,000 records of a TFRecordDataset, one by one", "small", 20),
        ("tf-write", "100,000 Examples built in Python and written", "small", 2),
        ("tf-images", "4,000 JPEGs: parse, decode, resize to 224, scale, shuffle, batch", "", 1.2),
        ("tf-augment", "the same with flip, brightness, contrast and saturation at random", "", 1),
        ("tf-brightness", "2,000 pictures of 64 x 64, in memory", "", 1),
        ("tf-contrast", "2,000 pictures of 64 x 64, in memory", "", 1),
        ("tf-unbatch", "unbatch, then batch(128), 204,800 numbers", "", 1),
    )
)
