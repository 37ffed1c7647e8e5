"""The plan of a conversion: which records are written to which file."""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock import formats
from penstock.contract.format import Format
from penstock.framing.format import FramedFormat
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import refuse_device
from penstock.verbs.convert._reading import Reading
from penstock.verbs.write.shards import Names


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file to write. It gets the records [first, last) in the order of reading."""

    number: int
    first: int
    last: int
    final: str


def plan(
    reading: Reading,
    kind: Format,
    target: str,
    is_folder: bool,
    num_shards: int | None,
    shard_records: int | None,
    compression: str | None,
) -> list[OutputFile]:
    """Return the files to write, in the order of their records. Nothing is written here."""
    dataset = reading.dataset
    if is_folder:
        if num_shards is not None or shard_records is not None:
            raise ValueError(
                "a folder gets one file per source shard; num_shards needs a file name"
            )
        edges = [int(first) for first in reading.firsts]
        finals = [_in_folder(path, target, kind, compression) for path in dataset.paths]
    else:
        edges = _edges(reading.num_records, num_shards, shard_records)
        is_sharded = num_shards is not None or shard_records is not None
        names = Names(target, kind.info.extensions, is_sharded, len(edges) - 1)
        finals = [names.final(number, len(edges) - 1) for number in range(len(edges) - 1)]
    check_names(finals, target, reading)
    return [OutputFile(n, edges[n], edges[n + 1], final) for n, final in enumerate(finals)]


def check_names(finals: list[str], target: str, reading: Reading) -> None:
    """Raise an error if a target name occurs twice, or belongs to a source file or a device."""
    if len(set(finals)) < len(finals):
        raise ValueError(f"{len(finals)} shards would be {len(set(finals))} files in {target}")
    files = reading.dataset.files
    for path in files.paths if isinstance(files.storage, LocalStorage) else ():
        for final in finals:
            if os.path.exists(final) and os.path.samefile(path, final):
                raise ValueError(f"{path} is a source, so it cannot be a target")
    for final in finals:
        refuse_device(final)


def _edges(total: int, num_shards: int | None, shard_records: int | None) -> list[int]:
    """Return the first record of each shard, then the total. `write` splits in the same way."""
    if num_shards is not None:
        base, longer = divmod(total, num_shards)
        return [n * base + min(n, longer) for n in range(num_shards + 1)]
    if shard_records is not None:
        return [*range(0, max(total, 1), shard_records), total]
    return [0, total]


def _in_folder(path: str, folder: str, kind: Format, compression: str | None) -> str:
    """Return the target path of a source shard: its name with the suffix of the new format."""
    name = os.path.basename(path).removesuffix(".gz")
    suffix = kind.info.extensions[0]
    can_gzip = "gzip" in kind.info.compressions and isinstance(kind, FramedFormat)
    if compression == "gzip" and can_gzip:
        suffix += ".gz"
    known = [ext for fmt in formats.FORMATS for ext in fmt.info.extensions]
    for ending in sorted(known, key=len, reverse=True):
        if name.endswith(ending):
            return os.path.join(folder, name[: -len(ending)] + suffix)
        if f"{ending}-" in name:  # train.tfrecord-00000-of-00010
            return os.path.join(folder, name.replace(f"{ending}-", "-", 1) + suffix)
    return os.path.join(folder, name + suffix)
