"""`python -m benchmarks.gpu`: a loader that feeds a GPU, compared with torch's DataLoader and with batches that are
already on the GPU.

It needs torch and torchvision with CUDA, and Pillow, but not `benchmarks/setup`. Before it measures, it checks that
batches on the GPU are the same as in main memory, also after a resume.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penstock as ps
from benchmarks import pictures

Batches = Callable[[], Iterator[tuple[Any, Any]]]
"""Starts an endless stream of images (uint8, on the GPU, [batch, 3, side, side]) and their labels."""


def same_on_gpu(folder: Path) -> None:
    """Raise AssertionError if a batch on the GPU differs from the one in main memory, also after a resume."""
    rng = np.random.default_rng(0)
    path = str(folder / "numbers.tfrecord")
    lists = [rng.normal(size=rng.integers(0, 9)).astype(np.float32) for _ in range(10_000)]
    vectors = list(rng.normal(size=(10_000, 16)).astype(np.float32))
    ps.write({"id": np.arange(10_000), "vector": vectors, "list": lists}, path)
    made = lambda: ps.Loader(ps.open(path), 256, order=ps.Shuffled(seed=1), ragged="pad")  # noqa: E731
    here, there = made(), made().torch(device="cuda")
    for step, (one, other) in enumerate(zip(here, there, strict=True)):
        for name, array in one.items():
            assert other[name].is_cuda and np.array_equal(other[name].cpu().numpy(), array), name
        if step == 12:
            following, resumed = made(), made().torch(device="cuda")
            following.load_state_dict(here.state_dict())
            resumed.load_state_dict(there.state_dict())
            one, other = next(iter(following)), next(iter(resumed))
            assert np.array_equal(other["id"].cpu().numpy(), one["id"])


def rate(batches: Batches, step: Callable[[Any, Any], Any], seconds: float) -> float:
    """Return images per second over some seconds, after eight batches that are not timed."""
    import torch

    found, count, begun = batches(), 0, 0.0
    for number, (images, labels) in enumerate(found):
        if number == 8:
            torch.cuda.synchronize()
            begun, count = time.perf_counter(), 0
        step(images, labels)
        count += len(images)
        if number > 8 and time.perf_counter() - begun > seconds:
            break
    torch.cuda.synchronize()
    return count / (time.perf_counter() - begun)


def of_penstock(path: str, batch: int, threads: int) -> Batches:
    """penstock's loader, in this process."""

    def start() -> Iterator[tuple[Any, Any]]:
        image = ps.Image(size=pictures.SIDE, crop="random", flip=True, layout="nchw")
        order = ps.Shuffled(seed=0)
        loader = ps.Loader(
            ps.open(path),
            batch,
            order=order,
            decode={"jpg": image},
            threads=threads,
            drop_last=True,
        )
        on_gpu = loader.torch(device="cuda")
        while True:
            for made in on_gpu:
                yield made["jpg"], made["cls"]

    return start


class Folder:
    """The same images as a torch dataset, decoded by Pillow and cropped by torchvision."""

    def __init__(self, path: str) -> None:
        from torchvision.transforms import v2

        self._files = ps.open(path).scan(columns=["jpg", "cls"])
        table = [batch.to_pydict() for batch in self._files]
        self._jpegs = [one for part in table for one in part["jpg"]]
        self._labels = [one for part in table for one in part["cls"]]
        self._change = v2.Compose(
            [
                v2.PILToTensor(),
                v2.RandomResizedCrop(pictures.SIDE, antialias=True),
                v2.RandomHorizontalFlip(),
            ]
        )

    def __len__(self) -> int:
        return len(self._jpegs)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        from PIL import Image

        picture = Image.open(io.BytesIO(self._jpegs[number])).convert("RGB")
        return self._change(picture), self._labels[number]


def of_torch(path: str, batch: int, workers: int) -> Batches:
    """torch's DataLoader with one process per core, pinned memory and a non-blocking copy."""

    def start() -> Iterator[tuple[Any, Any]]:
        from torch.utils.data import DataLoader

        loader = DataLoader(
            Folder(path), batch, shuffle=True, num_workers=workers, pin_memory=True,
            drop_last=True, persistent_workers=True, prefetch_factor=4,
        )  # fmt: skip
        while True:
            for images, labels in loader:
                yield images.cuda(non_blocking=True), labels.cuda(non_blocking=True)

    return start


def of_memory(batch: int) -> Batches:
    """One batch that stays on the GPU: the limit."""

    def start() -> Iterator[tuple[Any, Any]]:
        import torch

        images = torch.randint(0, 256, (batch, 3, pictures.SIDE, pictures.SIDE), dtype=torch.uint8)
        images, labels = images.cuda(), torch.randint(0, 1000, (batch,)).cuda()
        while True:
            yield images, labels

    return start


def training(name: str) -> Callable[[Any, Any], Any]:
    """Return a training step of a torchvision model in bfloat16."""
    import torch
    import torchvision

    model = getattr(torchvision.models, name)().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    mean = torch.tensor([123.7, 116.3, 103.5]).cuda().view(1, 3, 1, 1)
    deviation = torch.tensor([58.4, 57.1, 57.4]).cuda().view(1, 3, 1, 1)

    def step(images: Any, labels: Any) -> None:
        scaled = ((images.float() - mean) / deviation).to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(scaled), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    """Check, measure in turns, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each row in each round")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    import torch

    print(torch.cuda.get_device_name(), f"{asked.threads} threads", f"batches of {asked.batch}")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        os.environ["BENCHMARKS_TMPFS"] = name
        same_on_gpu(folder)
        print("batches on the GPU equal those in main memory, before and after a resume")
        path = str(folder / "pictures.tar")
        jpegs = pictures.jpegs()
        labels = np.arange(4 * len(jpegs)) % 1000
        ps.write({"jpg": jpegs * 4, "cls": labels}, path)
        rows: dict[str, Batches] = {
            "on the GPU already (limit)": of_memory(asked.batch),
            "penstock": of_penstock(path, asked.batch, asked.threads),
            "torch DataLoader, Pillow": of_torch(path, asked.batch, asked.threads),
        }
        for work, step in (
            ("feeding alone", lambda images, labels: None),
            ("ResNet-18, bfloat16", training("resnet18")),
            ("ResNet-50, bfloat16", training("resnet50")),
        ):
            found: dict[str, list[float]] = {row: [] for row in rows}
            for _ in range(asked.rounds):
                for row, batches in rows.items():
                    if not (row.startswith("on the") and work == "feeding alone"):
                        found[row].append(rate(batches, step, asked.seconds))
            print(f"\n{work}: pictures a second")
            for row, rates in found.items():
                if rates:
                    low, high = min(rates), max(rates)
                    print(
                        f"  {row:28} {statistics.median(rates):9,.0f}   {low:,.0f} to {high:,.0f}"
                    )


if __name__ == "__main__":
    main()
