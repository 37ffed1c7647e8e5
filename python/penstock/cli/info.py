"""`penstock info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from penstock.cli import output
from penstock.cli.options import json_option, opened, reading, source_argument

if TYPE_CHECKING:
    import penstock as ps


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
@reading(
    "format",
    "read",
    "hive",
    "raw",
    "damage",
    "index",
    "overlays",
    "infer",
    "limits",
    "missing_shards",
)
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
        output.show(found)
        output.print_damage(ds)


def _document(found: ps.Info) -> dict[str, Any]:
    return {
        "num_files": len(found.shards),
        "num_records": found.num_records,
        "counts_damaged": found.counts_damaged,
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
                "notes": list(shard.notes),
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
