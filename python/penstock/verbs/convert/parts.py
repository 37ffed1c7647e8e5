"""The plan of a conversion: which records are written to which file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from penstock import formats
from penstock.contract.format import Format
from penstock.framing.format import FramedFormat
from penstock.storage.local_sink import refuse_device
from penstock.storage.urls import is_url
from penstock.verbs.convert._reading import Reading
from penstock.verbs.write.names import Names


@dataclass(frozen=True, slots=True)
class OutputFile:
    """One file to write. It gets the records [first, last) in the order of reading."""

    number: int
    first: int
    last: int
    final: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A number of records, and the name of the file or files that they are written to."""

    target: str
    num_records: int


@dataclass(frozen=True, slots=True)
class Cut:
    """How records are divided into files: into a number of files, by a number of records, or not at all."""

    num_shards: int | None = None
    shard_records: int | None = None

    @property
    def is_sharded(self) -> bool:
        return self.num_shards is not None or self.shard_records is not None

    def edges(self, total: int) -> list[int]:
        """Return the first record of each shard, then the total, with the same split as in `write`."""
        if self.num_shards is not None:
            base, longer = divmod(total, self.num_shards)
            return [n * base + min(n, longer) for n in range(self.num_shards + 1)]
        if self.shard_records is not None:
            return [*range(0, max(total, 1), self.shard_records), total]
        return [0, total]


def plan(
    reading: Reading, kind: Format, target: str, is_folder: bool, cut: Cut, compression: str | None
) -> list[OutputFile]:
    """Return the files to write, in the order of their records. Nothing is written here."""
    dataset = reading.dataset
    if is_folder:
        if cut.is_sharded:
            raise ValueError(
                "a folder gets one file per source shard; num_shards needs a file name"
            )
        edges = [int(first) for first in reading.firsts]
        finals = [_in_folder(path, target, kind, compression) for path in dataset.paths]
    else:
        edges = cut.edges(reading.num_records)
        finals = _finals(target, kind, cut, len(edges) - 1)
    check_names(finals, target, reading)
    return [OutputFile(n, edges[n], edges[n + 1], final) for n, final in enumerate(finals)]


def plan_pieces(
    reading: Reading, kind: Format, pieces: Sequence[Piece], cut: Cut
) -> list[OutputFile]:
    """Return the files to write for several pieces, one piece after another."""
    found: list[OutputFile] = []
    start = 0
    for piece in pieces:
        edges = [start + edge for edge in cut.edges(piece.num_records)]
        for final in _finals(piece.target, kind, cut, len(edges) - 1):
            first, last = edges[:2]
            found.append(OutputFile(len(found), first, last, final))
            edges = edges[1:]
        start += piece.num_records
    check_names([part.final for part in found], pieces[0].target, reading)
    return found


def common_folder(pieces: Sequence[Piece]) -> str:
    """Return the folder that the files of all pieces are in or below; in a store, the folder of one of them."""
    folders = {os.path.dirname(piece.target) for piece in pieces}
    if any(map(is_url, folders)):
        return min(folders)
    return folders.pop() if len(folders) == 1 else os.path.commonpath(folders)


def _finals(target: str, kind: Format, cut: Cut, total: int) -> list[str]:
    names = Names(target, kind.info.extensions, cut.is_sharded, total)
    return [names.final(number, total) for number in range(total)]


def check_names(finals: list[str], target: str, reading: Reading) -> None:
    """Raise an error if a target name occurs twice, or belongs to a source file or a device."""
    if len(set(finals)) < len(finals):
        raise ValueError(f"{len(finals)} shards would be {len(set(finals))} files in {target}")
    files, there = reading.dataset.files, set(filter(os.path.exists, finals))
    for path in files.paths:
        if files.storage.is_here(path):
            is_target = any(_is_same_file(path, final) for final in there)
        else:
            is_one = path in finals and not reading.storage.is_here(path)
            is_target = is_one and reading.storage.state(path) == files.storage.opened_state(path)
        if is_target:
            raise ValueError(f"{path} is a source, so it cannot be a target")
    for final in finals:
        refuse_device(final)


def _is_same_file(path: str, other: str) -> bool:
    return os.path.exists(path) and os.path.samefile(path, other)


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
