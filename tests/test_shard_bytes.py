"""`shard_bytes`: shards of about so many bytes in every format, wherever batches of the input end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from penstock.dataset import open as open_dataset
from penstock.verbs.write import write


def lengths_of(paths: tuple[str, ...]) -> list[int]:
    return [len(open_dataset(path)) for path in paths]


def test_a_beton_ends_by_the_bytes_of_its_records_not_of_its_pages(tmp_path: Path) -> None:
    records = {"x": np.zeros((20, 250), "f4"), "b": [b"x" * 1000] * 20}
    pages: dict[str, Any] = {"page_bytes": 2 << 20}
    made = write(records, tmp_path / "one-{shard}.beton", shard_bytes=1_000_000, **pages)
    assert lengths_of(made.paths) == [20]
    assert made.num_bytes == os.path.getsize(made.paths[0])
    # A record takes 2,000 bytes of values, 24 in its row and 48 in the table.
    made = write(records, tmp_path / "two-{shard}.beton", shard_bytes=2072 * 10, **pages)
    assert lengths_of(made.paths) == [10, 10]


def test_a_beton_whose_values_are_all_in_rows_ends_by_its_rows(tmp_path: Path) -> None:
    made = write({"id": range(1000)}, tmp_path / "x-{shard}.beton", shard_bytes=4000)
    assert lengths_of(made.paths) == [500, 500]
