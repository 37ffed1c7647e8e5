"""Lightning's Trainer accepts the loader as an ordinary iterable, and stores its position in checkpoints."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import penstock as ps
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
        self.validated: list[list[int]] = []

    def training_step(self, batch: dict[str, Any], index: int) -> torch.Tensor:
        scores = self.layer(batch["image"].flatten(1).float() / 255)
        loss = torch.nn.functional.cross_entropy(scores, batch["label"])
        self.losses.append(loss.item())
        self.seen.append(batch["label"].tolist())
        return loss

    def validation_step(self, batch: dict[str, Any], index: int) -> None:
        self.validated.append(batch["label"].tolist())

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


def in_order(path: Path) -> ps.Loader:
    return ps.Loader(ps.open(path, index="never"), 40, decode={"image": ps.Image()})


def test_a_trainer_validates_after_every_epoch(path: Path, tmp_path: Path) -> None:
    net, fit = Net(), trainer(tmp_path, max_epochs=2, enable_checkpointing=False)
    fit.fit(net, image_loader(path).torch(), in_order(path).torch())
    once = [batch["label"].tolist() for batch in in_order(path)]
    assert net.validated == once[:2] + once + once  # Lightning tries two batches first
    ours = image_loader(path)
    assert net.seen == [batch["label"].tolist() for _ in range(2) for batch in ours]

    net.validated.clear()
    fit.validate(net, in_order(path).torch(), verbose=False)
    assert net.validated == once


DDP = """
    import sys
    from pathlib import Path
    import lightning
    import torch
    import torch.distributed as dist
    import penstock as ps

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = torch.nn.Linear(1, 1), []

        def training_step(self, batch, index):
            self.seen += batch["label"].tolist()
            return self.layer(batch["label"][:, None].float()).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def train_dataloader(self):
            return made().torch()

    def made():
        return ps.Loader(ps.open(sys.argv[1]), 8, columns=["label"], rank="auto")

    early, net = made().torch(), Net()  # a loader that is made before the processes are
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", devices=2, strategy="ddp", logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    trainer.fit(net)
    counts = [len(net.seen)]
    print("now early", file=sys.stderr, flush=True)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(net, early)
    counts.append(len(net.seen) - counts[0])
    Path(f"seen{dist.get_rank()}").write_text(f"{counts}")
"""


def test_a_loader_of_the_hook_reads_the_part_of_its_device_and_an_earlier_one_warns(
    path: Path, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text(textwrap.dedent(DDP))
    done = subprocess.run(
        [sys.executable, str(program), str(path)],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for rank in (0, 1):
        assert (tmp_path / f"seen{rank}").read_text() == "[120, 240]"
        warning = f"process {rank} of 2 (torch.distributed), and each reads all records"
        assert done.stderr.count(warning) == 1, done.stderr
        assert done.stderr.index("now early") < done.stderr.index(warning)


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
