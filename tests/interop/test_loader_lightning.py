"""Lightning's Trainer accepts the loader as an ordinary iterable, and stores its position in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from training import CLASSES, SIZE, shapes
from training import loader as image_loader

# Lightning's warnings about few workers, missing loggers and the processor.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(SIZE * SIZE * 3, CLASSES)
        self.losses: list[float] = []
        self.seen: list[list[int]] = []

    def training_step(self, batch: dict[str, Any], index: int) -> torch.Tensor:
        scores = self.layer(batch["image"].flatten(1).float() / 255)
        loss = torch.nn.functional.cross_entropy(scores, batch["label"])
        self.losses.append(loss.item())
        self.seen.append(batch["label"].tolist())
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def trainer(folder: Path, **more: Any) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shapes(tmp_path_factory.mktemp("lightning"))[0]


def test_a_trainer_sees_every_epoch_in_the_loaders_order(path: Path, tmp_path: Path) -> None:
    net = Net()
    fit = trainer(tmp_path, max_epochs=3, enable_checkpointing=False)
    fit.fit(net, image_loader(path).torch())
    ours = image_loader(path)
    assert net.seen == [batch["label"].tolist() for _ in range(3) for batch in ours]
    assert fit.num_training_batches == len(ours) == 6
    assert net.losses[-1] < net.losses[0]


@pytest.mark.parametrize("stop", [3, 6, 8])
def test_a_checkpoint_has_the_loaders_place(path: Path, tmp_path: Path, stop: int) -> None:
    """Checkpoints in the middle of an epoch, at its end (where Lightning stores only the number of the epoch), and
    after it."""
    whole, second = Net(), Net()
    saving = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=stop, save_top_k=-1)
    trainer(tmp_path, max_epochs=3, callbacks=[saving]).fit(whole, image_loader(path).torch())
    again = trainer(tmp_path, max_epochs=3, enable_checkpointing=False)
    saved = tmp_path / f"step={stop}.ckpt"
    again.fit(second, image_loader(path).torch(), ckpt_path=saved, weights_only=False)
    assert second.seen == whole.seen[stop:]
    assert second.losses == pytest.approx(whole.losses[stop:], rel=1e-5)
