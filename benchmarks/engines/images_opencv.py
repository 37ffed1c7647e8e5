"""OpenCV with two threads: decode whole images, crop, resize and flip them, and copy them into a batch."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import pictures
from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"


def batches(threads: int) -> Callable[[Data], Job]:
    """What a torch dataset does in its workers, without the cost of sending the results to the main process."""

    def make(data: Data) -> Job:
        from concurrent.futures import ThreadPoolExecutor

        import cv2
        import numpy as np

        cv2.setNumThreads(0)
        images = [np.frombuffer(one, np.uint8) for one in pictures.jpegs()]
        side, rng = pictures.SIDE, np.random.default_rng(0)
        out = np.zeros((pictures.BATCH, side, side, 3), np.uint8)

        def crop(height: int, width: int) -> tuple[int, int, int, int]:
            for _ in range(10):
                area = height * width * rng.uniform(0.08, 1)
                ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
                wide, high = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
                if 0 < wide <= width and 0 < high <= height:
                    top, left = rng.integers(height - high + 1), rng.integers(width - wide + 1)
                    return top, left, high, wide
            return 0, 0, height, width

        def one(place: int, number: int) -> None:
            image = cv2.imdecode(images[number], cv2.IMREAD_COLOR_RGB)
            top, left, high, wide = crop(*image.shape[:2])
            part = image[top : top + high, left : left + wide]
            part = cv2.resize(part, (side, side), interpolation=cv2.INTER_LINEAR)
            out[place] = part[:, ::-1] if number % 2 else part

        pool = ThreadPoolExecutor(threads)

        def work(check: bool) -> Outcome:
            for start in range(0, len(images), pictures.BATCH):
                numbers = range(start, min(start + pictures.BATCH, len(images)))
                list(pool.map(one, range(len(numbers)), numbers))
            return Outcome(len(images))

        return Job(work, after=lambda: None)

    return make


JOBS = {"images-crop": {"cv2, 1 thread": batches(1), "cv2, 2 threads": batches(2)}}
