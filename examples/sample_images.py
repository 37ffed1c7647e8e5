"""Makes small images for the other programs: images/0.jpg, images/1.jpg and so on."""

import sys
from pathlib import Path

import numpy as np

import penstock as ps


def main(folder: str, count: int = 1000) -> None:
    images = Path(folder, "images")
    images.mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[0:96, 0:128]
    pictures = [
        np.stack([rows + i, columns + 2 * i, rows + columns], axis=-1).astype(np.uint8)
        for i in range(count)
    ]
    for i, data in enumerate(ps.encode_images(pictures, "jpeg", quality=90).to_pylist()):
        (images / f"{i}.jpg").write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
