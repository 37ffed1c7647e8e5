"""Reads and writes .beton files by ffcv itself. Runs in a separate environment that has ffcv.

Takes JSON on standard input, a list of [what, file, file of results], for starting takes long:

    load     every field of every record, by Loader and both caches, as npz
    write    a file of every field; what went into it, as npz
    stored   fields, and the stored bytes of images, by Reader, as JSON
"""

from __future__ import annotations

import json
import sys

import numpy as np
from ffcv.fields import BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField
from ffcv.loader import Loader, OrderOption
from ffcv.reader import Reader
from ffcv.writer import DatasetWriter


def load(path: str, out: str) -> None:
    found = {}
    for cache in (True, False):
        loader = Loader(
            path,
            batch_size=5,
            num_workers=1,
            os_cache=cache,
            order=OrderOption.SEQUENTIAL,
            drop_last=False,
        )
        batches = [[np.array(part) for part in batch] for batch in loader]
        for place, name in enumerate(loader.reader.field_names):
            parts = [batch[place] for batch in batches]
            rows = loader.reader.metadata[f"f{place}"]
            if rows.dtype.names == ("ptr", "size"):
                sizes = iter(rows["size"])
                flat = [row[: next(sizes)].tobytes() for part in parts for row in part]
                found[f"{name}.{cache}"] = np.array([value.hex() for value in flat])
            else:
                found[f"{name}.{cache}"] = np.concatenate(parts)
    np.savez(out, **found)


class Records:
    """A dataset of this many records, with every field."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(5)
        self.image = rng.integers(0, 255, (count, 20, 30, 3), np.uint8)
        self.vector = rng.standard_normal((count, 3, 2)).astype(np.float32)
        self.bits = rng.integers(0, 2, (count, 5)).astype(bool)
        self.data = [rng.bytes(int(n)) for n in rng.integers(1, 900, count)]

    def __len__(self) -> int:
        return len(self.image)

    def __getitem__(self, n: int) -> tuple:
        text = {"n": int(n), "name": "né" * (n % 4)}
        blob = np.frombuffer(self.data[n], np.uint8)
        image = self.image[n]
        return image, n - 7, n / 8, blob, self.vector[n], text, self.bits[n], image


def write(path: str, out: str) -> None:
    records = Records(250)
    fields = {
        "image": RGBImageField(write_mode="raw"),
        "label": IntField(),
        "weight": FloatField(),
        "data": BytesField(),
        "vector": NDArrayField(np.dtype("<f4"), (3, 2)),
        "text": JSONField(),
        "bits": NDArrayField(np.dtype("?"), (5,)),
        "picture": RGBImageField(write_mode="proportion", compress_probability=0.5),
    }
    writer = DatasetWriter(path, fields, page_size=1 << 21, num_workers=3)
    writer.from_indexed_dataset(records, chunksize=10)
    np.savez(
        out,
        image=records.image,
        vector=records.vector,
        bits=records.bits,
        data=np.array([value.hex() for value in records.data]),
    )


def stored(path: str, out: str) -> None:
    reader = Reader(path)
    sizes = {int(entry["ptr"]): int(entry["size"]) for entry in reader.alloc_table}
    with open(path, "rb") as file:
        data = file.read()
    images = {}
    for place, name in enumerate(reader.field_names):
        rows = reader.metadata[f"f{place}"]
        if rows.dtype.names is None or "mode" not in rows.dtype.names:
            continue
        images[name] = []
        for row in rows:
            start = int(row["data_ptr"])
            value = data[start : start + sizes[start]]
            images[name].append(
                [int(row["mode"]), int(row["width"]), int(row["height"]), value.hex()]
            )
    said = {"names": reader.field_names, "records": int(reader.num_samples), "images": images}
    with open(out, "w") as file:
        json.dump(said, file)


if __name__ == "__main__":
    for what, path, out in json.load(sys.stdin):
        {"load": load, "write": write, "stored": stored}[what](path, out)
