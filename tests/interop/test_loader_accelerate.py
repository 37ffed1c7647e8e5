"""Accelerate's prepare accepts the loader as an ordinary iterable, and also a DataLoader over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

from training import CLASSES, SIZE, shapes
from training import loader as image_loader


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes(tmp_path_factory.mktemp("accelerate"))[0]


@pytest.fixture(scope="module")
def epochs(path: Path) -> list[list[int]]:
    ours = image_loader(path)
    return [batch["label"].tolist() for _ in range(3) for batch in ours]


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_prepared_loader_gives_every_epoch_in_its_order(
    path: Path, epochs: list[list[int]], wrapped: bool
) -> None:
    accelerator = Accelerator(cpu=True)
    rank = {"rank": accelerator.process_index, "world_size": accelerator.num_processes}
    data: Any = image_loader(path, **rank).torch(device=accelerator.device)
    if wrapped:
        data = DataLoader(data, batch_size=None, num_workers=2)
    torch.manual_seed(0)
    model = torch.nn.Linear(SIZE * SIZE * 3, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    assert len(data) == 6
    seen: list[list[int]] = []
    losses: list[float] = []
    for _ in range(3):
        for batch in data:
            scores = model(batch["image"].flatten(1).float() / 255)
            loss = torch.nn.functional.cross_entropy(scores, batch["label"])
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            seen.append(batch["label"].tolist())
            losses.append(loss.item())
    assert seen == epochs
    assert losses[-1] < losses[0]


def test_a_registered_loader_is_part_of_accelerates_checkpoint(
    path: Path, epochs: list[list[int]], tmp_path: Path
) -> None:
    accelerator = Accelerator(cpu=True)
    data = image_loader(path).torch()
    accelerator.register_for_checkpointing(data)
    batches = iter(data)
    for _ in range(4):
        next(batches)
    accelerator.save_state(str(tmp_path / "saved"))
    batches.close()

    again = Accelerator(cpu=True)
    other = image_loader(path).torch()
    again.register_for_checkpointing(other)
    again.load_state(str(tmp_path / "saved"))
    rest = [batch["label"].tolist() for _ in range(2) for batch in other]
    assert rest == epochs[4:12]
