"""The hidden names of penstock's files next to data. Glob patterns of other readers do not match them."""

from __future__ import annotations

import os
from collections.abc import Sequence

SIDECAR_SUFFIX = ".penstock"
TEMPORARY_SUFFIX = ".penstock-tmp"
JOB_PREFIX = ".penstock-"
"""How the names of files and folders of running jobs begin."""
FIELDS_JOB = ".penstock-fields-"
"""How the name of the journal of a change of fields begins."""
_NAME_BYTES = 255
"""The longest file name on most file systems, in bytes."""


def hidden(data_path: str | os.PathLike[str], suffix: str) -> str:
    """The path of the hidden file or folder next to a file: `.NAME` plus the suffix. If that is too long, a digest
    replaces the end of the name."""
    folder, name = os.path.split(os.fspath(data_path).rstrip("/"))
    encoded = os.fsencode(name)
    if len(encoded) + len(os.fsencode(suffix)) + 1 > _NAME_BYTES:
        import hashlib  # costs 3 ms at import, and is rarely needed

        digest = hashlib.blake2b(encoded, digest_size=8).hexdigest()
        room = _NAME_BYTES - len(f"..{digest}{suffix}")
        name = f"{os.fsdecode(encoded[:room])}.{digest}"
    return os.path.join(folder, f".{name}{suffix}")


_OWN_ENDINGS = (SIDECAR_SUFFIX, TEMPORARY_SUFFIX, ".penstock-fields")
"""Endings of names that were not hidden in earlier versions."""


def is_own(name: str) -> bool:
    """Whether a name is one of penstock's own files: indexes, overlays, notes, journals and temporaries."""
    return (name.startswith(".") and ".penstock" in name) or name.endswith(_OWN_ENDINGS)


def is_fields_job(name: str) -> bool:
    """Whether a file of this name is the journal of a change of fields."""
    return name.startswith(FIELDS_JOB) and name.endswith(".json")


def fields_job_of(files: Sequence[str]) -> str:
    """The name of the journal of a change of the fields of these files, given by their real paths."""
    import hashlib  # as above

    joined = chr(0).join(files).encode("utf-8", "surrogatepass")
    return f"{FIELDS_JOB}{hashlib.blake2b(joined, digest_size=8).hexdigest()}.json"
