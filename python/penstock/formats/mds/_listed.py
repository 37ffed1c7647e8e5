"""What the index.json of a folder lists about a shard: its size, number of records and hashes."""

from __future__ import annotations

import hashlib
import os

from penstock.contract.format import Options
from penstock.engine.locks import Lock
from penstock.errors import ChecksumError, FormatError
from penstock.storage.base import Source
from penstock.storage.mds_index import INDEX_NAME, ListedFile, check_size, read_listing

_STEP = 8 << 20


class Hashes:
    """Verifies the listed hashes of a file once."""

    def __init__(self, source: Source, listed: ListedFile | None) -> None:
        self._source = source
        self._listed = listed
        self._lock = Lock()

    def verify(self) -> None:
        """Raise ChecksumError if a hash of the file differs from the listed hash."""
        with self._lock:
            hashes = {} if self._listed is None else self._listed.hashes
            for name, expected in hashes.items():
                if name not in hashlib.algorithms_available or name.startswith("shake"):
                    continue
                found = self._hash(name)
                if found != expected:
                    raise ChecksumError(
                        f"the file's {name} differs from the one in {INDEX_NAME}",
                        file=self._source.path,
                        expected=f"{expected} (listed)",
                        found=found,
                    )
            self._listed = None

    def _hash(self, name: str) -> str:
        digest = hashlib.new(name, usedforsecurity=False)
        for start in range(0, self._source.size, _STEP):
            digest.update(self._source.read(start, _STEP))
        return digest.hexdigest()


def listed_hashes(source: Source, num_records: int, options: Options) -> Hashes:
    """Compare a shard with the index.json of its folder, if the index lists the shard. Raise FormatError or
    TruncatedError if the size or the number of records differs."""
    beside = None if options.checksums == "none" else options.beside(INDEX_NAME)
    if beside is None:
        return Hashes(source, None)
    try:
        shards = read_listing(beside, options.limits) or []
    finally:
        beside.close()
    name = os.path.basename(source.path)
    found: ListedFile | None = None
    for shard in shards:
        for file in (shard.plain, shard.packed):
            if file is None or file.name != name:
                continue
            check_size(source.path, source.size, file)
            if shard.num_records != num_records:
                message = f"{INDEX_NAME} lists a different number of records"
                listed = f"{shard.num_records} (listed)"
                raise FormatError(message, expected=listed, found=num_records)
            found = file
    return Hashes(source, found if options.verifies else None)
