"""`penstock info`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from penstock import describe
from penstock.cli import output
from penstock.cli.options import json_option, opened, reading, source_argument

if TYPE_CHECKING:
    import penstock as ps

_MOST_FILES = 12
"""More files than this are not listed one by one."""
_TYPE_WORDS = {
    "given": "as requested",
    "kept": "as written, from the sidecar",
    "stored": "from the files",
    "inferred": "inferred from records",
}
_INDEX_WORDS = {
    "found": "found",
    "made": "made just now",
    "none": "none",
    "not needed": "part of the format",
}


@click.command(
    "info",
    epilog="""\b
Examples:
  penstock info train.tfrecord
  penstock info 'train-*.tfrecord' --json
  penstock info train@10 --index never
""",
)
@source_argument
@reading("format", "read", "hive", "raw", "damage", "index", "infer", "limits")
@json_option
def command(source: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Show what a dataset consists of: files, format, compression, records, bytes, index, fields.

    To count the records of TFRecord and similar files, an index is built if there is none. With
    --index never it is not stored.
    """
    import penstock as ps

    ds = opened(source, **options)
    found = ps.info(ds)
    if as_json:
        output.emit({**_document(found), "damage": output.damage_of(ds)})
    else:
        output.show(*_page(found))
        output.print_damage(ds)


def _document(found: ps.Info) -> dict[str, Any]:
    return {
        "num_files": len(found.shards),
        "num_records": found.num_records,
        "num_bytes": found.num_bytes,
        "record_bytes": spread_document(found.record_bytes),
        "types": found.types,
        "fields": [{"name": f.name, "type": str(f.type)} for f in found.schema],
        "files": [
            {
                "path": shard.path,
                "format": shard.format,
                "compression": shard.compression,
                "num_records": shard.num_records,
                "num_bytes": shard.num_bytes,
                "plain_bytes": shard.plain_bytes,
                "record_bytes": spread_document(shard.record_bytes),
                "index": shard.index,
                "index_path": shard.index_path,
            }
            for shard in found.shards
        ],
        "skipped_files": [file._asdict() for file in found.skipped_files],
    }


def spread_document(spread: ps.Spread | None) -> dict[str, Any] | None:
    """Return a range for JSON."""
    if spread is None:
        return None
    return {"count": spread.count, "min": spread.min, "mean": spread.mean, "max": spread.max}


def _page(found: ps.Info) -> list[Any]:
    shards = found.shards
    pairs = [
        ("files", _files(shards)),
        ("format", _formats(shards)),
        ("records", describe.count(found.num_records)),
        ("bytes", _bytes(found)),
    ]
    if found.record_bytes is not None:
        pairs.append(("record size", output.spread(found.record_bytes, describe.size)))
    pairs.append(("index", _index(shards)))
    pairs.append(("types", _TYPE_WORDS[found.types]))
    parts: list[Any] = [output.facts(pairs), "", _fields(found)]
    if 1 < len(shards) <= _MOST_FILES:
        parts += ["", _listing(shards)]
    if found.skipped_files:
        parts += ["", _skipped(found.skipped_files)]
    return parts


def _files(shards: tuple[ps.ShardInfo, ...]) -> Text:
    if len(shards) == 1:
        return output.name(shards[0].path)
    line = Text(f"{describe.count(len(shards))}: ")
    line.append_text(output.name(shards[0].path)).append(" … ")
    return line.append_text(output.name(shards[-1].path))


def _skipped(files: tuple[ps.SkippedFile, ...]) -> Any:
    shown = output.table("not read", "reason")
    for path, reason in files[:_MOST_FILES]:
        shown.add_row(describe.escape(os.path.basename(path)), describe.escape(reason))
    if len(files) > _MOST_FILES:
        shown.add_row(f"and {describe.count(len(files) - _MOST_FILES)} more", "")
    return shown


def _formats(shards: tuple[ps.ShardInfo, ...]) -> str:
    kinds: dict[str, int] = {}
    for shard in shards:
        compression = {"": "not compressed", None: ""}.get(shard.compression, shard.compression)
        kind = ", ".join(word for word in (shard.format, compression) if word)
        kinds[kind] = kinds.get(kind, 0) + 1
    if len(kinds) == 1:
        return next(iter(kinds))
    return " · ".join(f"{number} {kind}" for kind, number in kinds.items())


def _bytes(found: ps.Info) -> str:
    shown = describe.size(found.num_bytes)
    plain = [shard.plain_bytes for shard in found.shards]
    total = sum(size for size in plain if size is not None)
    if None in plain or total == found.num_bytes or not any(s.compression for s in found.shards):
        return shown
    return f"{shown}, {describe.size(total)} when inflated"


def _index(shards: tuple[ps.ShardInfo, ...]) -> str:
    states: dict[str, int] = {}
    for shard in shards:
        states[shard.index] = states.get(shard.index, 0) + 1
    if len(states) == 1:
        return _INDEX_WORDS[shards[0].index]
    return " · ".join(f"{number} {_INDEX_WORDS[state]}" for state, number in states.items())


def _fields(found: ps.Info) -> Any:
    shown = output.table("field", "type")
    for field in found.schema:
        shown.add_row(describe.escape(field.name), output.dim(output.kind(field)))
    return shown


def _listing(shards: tuple[ps.ShardInfo, ...]) -> Any:
    shown = output.table("file", "records", "bytes", "compression", right=("records", "bytes"))
    for shard in shards:
        shown.add_row(
            describe.escape(shard.path),
            describe.count(shard.num_records),
            describe.size(shard.num_bytes),
            {"": "none", None: ""}.get(shard.compression, shard.compression),
        )
    return shown
