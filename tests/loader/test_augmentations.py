"""The recipe of docs/guide/augmentations.md that needs worker processes; tests/docs runs the rest of that page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from pictures import jpeg, picture
from torchvision_functions import transformed

import penstock as ps


def loader(path: Path, batch_size: int, **options: Any) -> ps.Loader:
    image = ps.Image(32, crop="random", layout="nchw")
    order = ps.Shuffled(seed=2)
    decode = {"image": image}
    return ps.Loader(ps.open(path), batch_size, order=order, decode=decode, **options)


def test_transforms_of_torchvision_are_repeated_by_processes_resuming_and_other_batches(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.parquet"
    ps.write({"image": [jpeg(picture(48, 64, n)) for n in range(12)]}, path)
    plain = np.concatenate([batch["image"] for batch in loader(path, 3)])
    by_processes = loader(path, 3, map=transformed, processes=2)
    batches = iter(by_processes)
    first = next(batches)["image"]
    state = by_processes.state_dict()
    rest = [batch["image"] for batch in batches]
    whole = np.concatenate([first, *rest])
    assert not np.array_equal(whole, plain)
    resumed = loader(path, 3, map=transformed, processes=1)
    resumed.load_state_dict(state)
    np.testing.assert_array_equal(np.concatenate([b["image"] for b in resumed]), whole[3:])
    others = [batch["image"] for batch in loader(path, 5, map=transformed, threads=0)]
    np.testing.assert_array_equal(np.concatenate(others), whole)
