"""HDF5 through h5py: contiguous datasets of rows of one length, uncompressed."""

from __future__ import annotations

from typing import Any

from benchmarks.data import Data
from benchmarks.job import Job, Outcome

ROLE = "rival"
VENV = "others"
TEXT_BYTES = 28


def fill(path: Any, data: Data) -> None:
    """Writes the datasets; texts are padded, and their lengths are stored in a dataset of their own."""
    import h5py
    import numpy as np

    from benchmarks import generate

    n = data.num_records
    with h5py.File(path, "w") as file:
        label = file.create_dataset("label", (n,), "i8")
        at = 0
        if data.size == "large":
            image = file.create_dataset("image", (n, generate.IMAGE_BYTES), "u1")
            for rows in generate.large_rows(n):
                image[at : at + len(rows.label)] = rows.image
                label[at : at + len(rows.label)] = rows.label
                at += len(rows.label)
            return
        number = file.create_dataset("id", (n,), "i8")
        embedding = file.create_dataset("embedding", (n, generate.EMBEDDING_VALUES), "f4")
        text = file.create_dataset("text", (n, TEXT_BYTES), "u1")
        length = file.create_dataset("length", (n,), "i4")
        for rows in generate.small_rows(n):
            part = slice(at, at + len(rows.label))
            number[part], label[part], embedding[part] = rows.id, rows.label, rows.embedding
            padded = np.array(rows.text, f"S{TEXT_BYTES}")
            text[part] = padded.view(np.uint8).reshape(-1, TEXT_BYTES)
            length[part] = [len(t) for t in rows.text]
            at = part.stop


def take(data: Data) -> Job:
    """Each batch is sorted for h5py, read, and put back into the requested order."""
    import h5py
    import numpy as np

    from benchmarks import checks

    path = data.copy("contiguous.h5")
    if not path.exists():
        fill(path, data)
    columns = dict(h5py.File(path, "r").items())
    batches = checks.take_batches(data)

    def checksum(read: dict[str, Any]) -> int:
        texts = read.pop("text" if "text" in read else "image")
        length = int(read.pop("length").sum()) if "length" in read else texts.size
        return checks.columns_sum(read, (length, texts.reshape(-1)))

    def one_by_one(batch: Any) -> dict[str, Any]:
        return {n: np.stack([c[i] for i in batch.tolist()]) for n, c in columns.items()}

    def sorted_list(batch: Any) -> dict[str, Any]:
        order = np.argsort(batch)
        back = np.argsort(order)
        wanted = batch[order]
        return {n: c[wanted][back] for n, c in columns.items()}

    # Fancy indexing is faster for small rows, and single reads for large rows.
    read_batch = sorted_list if data.size == "small" else one_by_one

    def work(check: bool) -> Outcome:
        count = total = 0
        for batch in batches:
            read = read_batch(batch)
            count += len(batch)
            if check:
                total += checksum(read)
        return Outcome(count, "take columns", total & checks.WRAP)

    return Job(work)


JOBS = {
    "take-small": {"contiguous, sorted lists": take},
    "take-large": {"contiguous, row by row": take},
}
