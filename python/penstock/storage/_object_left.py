"""What killed processes left in a folder of an object store.

Uploads are found by the notes beside their objects and, in S3, by asking the store, which needs botocore.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock import _core
from penstock.storage._left import Leftover, kind_of
from penstock.storage._object_sink import Place, Translated, give_up
from penstock.storage.store_lock import STALE_SECONDS, lives_here
from penstock.storage.urls import split_url

_MOST_BYTES = 4096
_LOCK = "/lock-"

Load = Callable[[str, int], "bytes | None"]


def of_store(folder: str, place: Place, load: Load) -> Iterator[Leftover]:
    """The leftovers among penstock's own objects in a folder. `load` returns the bytes of a small object."""
    begin = folder.rstrip("/") + "/."
    store, key = place(begin)
    root = begin[: len(begin) - len(key)]
    objects, folders = store.list_folder(key)
    for name, state in objects:
        kind = kind_of(os.path.basename(name))
        if kind is not None:
            is_note = kind == "temporary file"
            yield Leftover(root + name, "upload" if is_note else kind, 0, _written(state))
    for name in folders:
        if kind_of(os.path.basename(name.rstrip("/"))) != "journal":
            continue
        inside = dict(store.list(name))
        if not inside.keys() - {name}:
            continue  # an empty object that marks a folder
        num_bytes = sum(state.size for state in inside.values())
        locks = {one: state for one, state in inside.items() if _LOCK in one}
        is_used = bool(locks) and _is_used(root, locks, load)
        written = max(map(_written, inside.values()))
        yield Leftover(root + name.rstrip("/"), "journal", num_bytes, written, is_used)


def _written(state: _core.ObjectState) -> float:
    return (state.modified_ms or 0) / 1000


def _is_used(root: str, locks: Mapping[str, _core.ObjectState], load: Load) -> bool:
    last = max(locks)
    is_here = lives_here(load(root + last, _MOST_BYTES) or b"")
    return time.time() - _written(locks[last]) < STALE_SECONDS if is_here is None else is_here


def discard(left: Leftover, place: Place, translated: Translated) -> None:
    """Remove a leftover and what it stands for."""
    if left.upload:
        store, key = place(left.path)
        with translated(left.path):
            store.upload(key, left.upload).abort()
    elif left.kind == "journal":
        store, key = place(left.path + "/")
        with translated(left.path):
            for name, _ in store.list(key):
                store.delete(name)
    else:
        give_up(left.path, place, translated)


def open_uploads(folder: str, options: Mapping[str, str]) -> list[Leftover]:
    """The uploads of objects directly in a folder that were neither completed nor given up. Empty if botocore is not
    installed, or if this is not S3."""
    url = split_url(folder + "/")
    if url.scheme != "s3":
        return []
    try:
        import botocore.session  # pyright: ignore[reportMissingTypeStubs]
        from botocore import UNSIGNED  # pyright: ignore[reportMissingTypeStubs]
        from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        return []
    how: dict[str, Any] = {"s3": {"addressing_style": "path"}}
    if options.get("aws_skip_signature") == "true":
        how["signature_version"] = UNSIGNED
    names = {
        "region_name": "aws_region", "endpoint_url": "aws_endpoint_url",
        "aws_access_key_id": "aws_access_key_id", "aws_secret_access_key": "aws_secret_access_key",
        "aws_session_token": "aws_session_token",
    }  # fmt: skip
    given = {word: options[name] for word, name in names.items() if name in options}
    session: Any = botocore.session.get_session()
    client = session.create_client("s3", config=Config(**how), **given)
    bucket = url.container.partition("://")[2]
    pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=url.key)
    found = [upload for page in pages for upload in page.get("Uploads", ())]
    start = folder[: len(folder) + 1 - len(url.key)] if url.key else folder + "/"
    return [
        Leftover(
            start + one["Key"], "upload", 0, one["Initiated"].timestamp(), upload=one["UploadId"]
        )
        for one in found
        if "/" not in one["Key"][len(url.key) :]
    ]
