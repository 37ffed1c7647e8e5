"""The files of the benchmark data, and facts about them. Imports only the standard library, because the parent
process and every engine use this module, each in a different environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

NUM_SHARDS = 4
TAKE_RECORDS = 256
TAKE_BATCHES = {"small": 40, "large": 20}
FULL_RECORDS = {"small": 1_000_000, "large": 20_000}
RECORD_BYTES = {"small": 166, "large": 100_080}
# The size of a dataset with its shards, compressed files and copies in the rivals' formats, as a
# multiple of the plain file.
COPIES = {"small": 8, "large": 5}


@dataclass(frozen=True)
class Data:
    """One dataset: its files, and the facts that the result of every engine is compared with."""

    folder: Path
    size: str
    num_records: int
    plain_bytes: int
    payload_bytes: int
    payload_sum: int
    column_sum: int

    @property
    def plain(self) -> Path:
        """All records in one uncompressed TFRecord file."""
        return self.folder / "plain.tfrecord"

    @property
    def shards(self) -> list[Path]:
        """The same records in several uncompressed files."""
        return [
            self.folder / f"shard-{i:05d}-of-{NUM_SHARDS:05d}.tfrecord" for i in range(NUM_SHARDS)
        ]

    @property
    def gzip(self) -> Path:
        """All records in one file of one GZIP member, as TensorFlow writes it."""
        return self.folder / "single.tfrecord.gz"

    @property
    def gzip_shards(self) -> list[Path]:
        """The same records in several files."""
        return [
            self.folder / f"gzip-{i:05d}-of-{NUM_SHARDS:05d}.tfrecord.gz" for i in range(NUM_SHARDS)
        ]

    def copy(self, name: str) -> Path:
        """A path for the same records in an engine's own format, made by that engine."""
        folder = self.folder / "copies"
        folder.mkdir(exist_ok=True)
        return folder / name

    def remove_copies(self) -> None:
        """Deletes the copies to free their space; they are made again when they are needed."""
        shutil.rmtree(self.folder / "copies", ignore_errors=True)


def load(folder: Path, size: str) -> Data:
    """Reads the facts of an existing dataset."""
    facts = json.loads((folder / size / "facts.json").read_text())
    return Data(folder / size, size, **facts)


def ensure(folder: Path, size: str, scale: float, python: Path) -> Data:
    """Returns the dataset; makes it first if it is missing or has another scale.

    Args:
        folder: The folder of all datasets.
        size: "small" or "large".
        scale: Share of the full number of records.
        python: An interpreter with numpy and crc32c, which makes the data.
    """
    num_records = max(2048, int(FULL_RECORDS[size] * scale))
    if (folder / size / "facts.json").exists():
        data = load(folder, size)
        if data.num_records == num_records:
            return data
    shutil.rmtree(folder / size, ignore_errors=True)
    (folder / size).mkdir(parents=True)
    subprocess.run(
        [python, "-m", "benchmarks.generate", size, str(num_records), str(folder / size)],
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return load(folder, size)


def needed_bytes(sizes: set[str], scale: float) -> int:
    """An estimate of the most bytes that the datasets and their copies take."""
    return int(sum(FULL_RECORDS[s] * RECORD_BYTES[s] * COPIES[s] for s in sizes) * scale)


def available_memory() -> int:
    """Bytes of memory that are available according to the kernel; 0 if the kernel does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def default_folder(sizes: set[str], scale: float) -> Path:
    """A folder in memory if it has room for twice the data, else a folder next to this file."""
    needed = needed_bytes(sizes, scale)
    shm = Path("/dev/shm")
    if shm.is_dir() and os.access(shm, os.W_OK):
        free = min(shutil.disk_usage(shm).free, available_memory())
        if free > 2 * needed:
            return shm / "penstock-benchmarks"
    return Path(__file__).parent / "data"
