"""The loaders that are based on torch: webdataset with OpenCV in DataLoader's workers, and FFCV."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import pictures
from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "ffcv"


def _crop(image: Any) -> Any:
    """A crop as torchvision makes it, but with OpenCV, which is faster than Pillow."""
    import cv2
    import numpy as np

    cv2.setNumThreads(0)
    image = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR_RGB)
    height, width = image.shape[:2]
    rng = np.random.default_rng()
    for _ in range(10):
        area = height * width * rng.uniform(0.08, 1)
        ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, high = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            top, left = rng.integers(height - high + 1), rng.integers(width - wide + 1)
            image = image[top : top + high, left : left + wide]
            break
    image = cv2.resize(image, (pictures.SIDE,) * 2, interpolation=cv2.INTER_LINEAR)
    return np.ascontiguousarray(image[:, ::-1]) if rng.random() < 0.5 else image


def webdataset(data: Data) -> Job:
    """Records shuffled through a buffer, by two worker processes."""
    import torch
    import webdataset as wds

    samples = wds.WebDataset(
        pictures.container(".tar"), shardshuffle=False, nodesplitter=None, workersplitter=None
    )

    def of_worker(source: Any) -> Any:
        # webdataset divides work by file. There is only one file, so each worker takes every second
        # record.
        worker = torch.utils.data.get_worker_info()
        for number, sample in enumerate(source):
            if number % worker.num_workers == worker.id:
                yield sample

    pipeline = samples.compose(of_worker).shuffle(1000).to_tuple("jpg", "cls")
    pipeline = pipeline.map_tuple(_crop, int).batched(pictures.BATCH, partial=True)
    loader = torch.utils.data.DataLoader(
        pipeline, batch_size=None, num_workers=2, persistent_workers=True
    )

    def work(check: bool) -> Outcome:
        return Outcome(sum(len(images) for images, _ in loader))

    return Job(work)


def ffcv(data: Data) -> Job:
    """FFCV over a file of its format that holds the same JPEGs."""
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor

    side = pictures.SIDE
    loader = Loader(
        pictures.container(".beton"),
        batch_size=pictures.BATCH,
        num_workers=2,
        order=OrderOption.RANDOM,
        drop_last=False,
        pipelines={
            "image": [
                RandomResizedCropRGBImageDecoder((side, side)),
                RandomHorizontalFlip(),
                ToTensor(),
            ],
            "label": [IntDecoder(), ToTensor()],
        },
    )

    def work(check: bool) -> Outcome:
        return Outcome(sum(len(batch[0]) for batch in loader))

    return Job(work)


def ffcv_raw(workers: int, *, shuffled: bool, mmap: bool) -> Callable[[Data], Job]:
    """Batches of raw images by FFCV's Loader, one epoch, mapped or from the pages that it reads."""

    def make(data: Data) -> Job:
        from ffcv.fields.basics import IntDecoder
        from ffcv.fields.rgb_image import SimpleRGBImageDecoder
        from ffcv.loader import Loader, OrderOption

        loader = Loader(
            pictures.raw_beton(),
            batch_size=pictures.BATCH,
            num_workers=workers,
            order=OrderOption.RANDOM if shuffled else OrderOption.SEQUENTIAL,
            drop_last=False,
            os_cache=mmap,
            pipelines={"image": [SimpleRGBImageDecoder()], "label": [IntDecoder()]},
        )

        def work(check: bool) -> Outcome:
            count = total = 0
            for images, _ in loader:
                count += len(images)
                total += int(images.sum(dtype="uint64")) if check else 0
            if check and total != pictures.raw_total():
                raise ValueError("the images are not those that were written")
            return Outcome(count)

        return Job(work)

    return make


JOBS = {
    **{
        f"beton-raw{'-shuffled' * shuffled}": {
            f"FFCV, {n} thread{'s' * (n > 1)}{', mmap' * mmap}": ffcv_raw(
                n, shuffled=shuffled, mmap=mmap
            )
            for n in (1, 2)
            for mmap in (False, True)
        }
        for shuffled in (False, True)
    },
    "images-load-tar": {"webdataset + cv2, 2 workers": webdataset},
    "images-load-beton": {"FFCV, 2 threads": ffcv},
}
