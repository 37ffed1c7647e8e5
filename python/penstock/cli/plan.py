"""`penstock plan`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import output
from penstock.cli.options import json_option, misuse, opened, reading, source_argument

if TYPE_CHECKING:
    import penstock as ps

_ORDERS = (
    *("sequential", "shuffled", "blocked", "buffered", "interleaved"),
    *("weighted", "balanced", "mixture"),
)


@click.command(
    "plan",
    epilog="""\b
Examples:
  penstock plan train.tfrecord --batch-size 256 --world-size 8
  penstock plan 'train-*.tfrecord' --batch-size 64 --order shuffled --seed 1 --audit
  penstock plan train.tfrecord --batch-size 32 --position 4096 --uneven pad --json
  penstock plan train.tfrecord --batch-size 64 --order balanced --by label --audit
  penstock plan train.tfrecord --batch-size 64 --buckets tokens=128,512,2048 --audit
  penstock plan train.tfrecord --buckets tokens=128:64,512:16,2048:4 --audit
  penstock plan a.tfrecord b.tar --batch-size 64 --order mixture --share 0.75 --share 0.25
""",
)
@source_argument
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    help="Records per batch. Needed unless --buckets has the batch sizes.",
)
@click.option(
    "--world-size",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of ranks.",
)
@click.option(
    "--order", type=click.Choice(_ORDERS), default="shuffled", show_default=True, help="The order."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the order."
)
@click.option(
    "--buffer",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Number of records in the buffer, for --order buffered.",
)
@click.option(
    "--by",
    metavar="COLUMN",
    help="Column of weights for --order weighted, or of labels for --order balanced.",
)
@click.option(
    "--share",
    "shares",
    type=float,
    multiple=True,
    help="Share of a SOURCE for --order mixture; give one for each SOURCE.",
)
@click.option(
    "--epoch-records",
    type=click.IntRange(min=0),
    help="Length of an epoch for --order weighted, balanced or mixture. [default: the number of records]",
)
@click.option(
    "--epoch", type=click.IntRange(min=0), default=0, show_default=True, help="Number of the epoch."
)
@click.option(
    "--position",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Start at this position, as in a saved state.",
)
@click.option(
    "--uneven",
    type=click.Choice(["wrap", "drop", "pad"]),
    default="wrap",
    show_default=True,
    help="What to do with records that do not divide evenly among ranks.",
)
@click.option(
    "--buckets",
    multiple=True,
    metavar="COLUMN=SIZES",
    help="Batches of records of similar length, such as tokens=128,512,2048, or with batch sizes, tokens=128:64,512:16."
    " An expression such as len(text) may take the place of COLUMN.",
)
@click.option(
    "--truncate", is_flag=True, help="Shorten lists that are longer than the largest bucket."
)
@click.option("--drop-last", is_flag=True, help="Leave out the last step if it is not full.")
@click.option(
    "--audit",
    is_flag=True,
    help="Count how often each record is read. The exit status is 1 if that is not as planned.",
)
@reading("format", "read", "index", "overlays", "threads", "missing_shards")
@json_option
def command(
    source: tuple[str, ...],
    batch_size: int | None,
    world_size: int,
    order: str,
    seed: int,
    buffer: int,
    by: str | None,
    shares: tuple[float, ...],
    epoch_records: int | None,
    epoch: int,
    position: int,
    uneven: Any,
    buckets: tuple[str, ...],
    truncate: bool,
    drop_last: bool,
    audit: bool,
    format: str | None,
    read: tuple[str, ...],
    index: str,
    overlays: str | None,
    threads: int | None,
    missing_shards: str,
    storage_options: dict[str, str] | None,
    as_json: bool,
) -> int:
    """Show which records each rank reads in an epoch. Only the columns of --by and --buckets are read.

    `penstock.Loader` uses the same arithmetic. With the same options it reads these records.
    """
    import penstock as ps

    _check_options(order, source, by, shares, epoch_records)
    sizes = _buckets(buckets, batch_size)
    options = {
        "format": format,
        "read": read,
        "index": index,
        "overlays": overlays,
        "missing_shards": missing_shards,
        "storage_options": storage_options,
    }
    data: Any
    if order == "mixture":
        data = {f"{n}: {path}": opened((path,), **options) for n, path in enumerate(source)}
    else:
        data = opened(source, **options)
    column = _column(data, by)
    with misuse():
        made: dict[str, Callable[[], ps.Order]] = {
            "sequential": ps.Sequential,
            "shuffled": lambda: ps.Shuffled(seed),
            "blocked": lambda: ps.Blocked(seed),
            "buffered": lambda: ps.Buffered(seed, buffer),
            "interleaved": lambda: ps.Interleaved(seed=seed),
            "weighted": lambda: ps.Weighted(column, seed, epoch_records),
            "balanced": lambda: ps.Balanced(column, seed, epoch_records),
            "mixture": lambda: ps.Mixture(
                dict(zip(data, shares, strict=True)), seed, epoch_records
            ),
        }
        loader = ps.Loader(
            data,
            batch_size,
            order=made[order](),
            columns=_shared(data) if order == "mixture" else None,
            world_size=world_size,
            uneven=uneven,
            drop_last=drop_last,
            threads=threads,
            epoch=epoch,
            buckets=sizes,
            truncate=truncate,
        )
        if buckets and position:
            raise ValueError(
                "--position does not apply with --buckets, whose state has a count of each bucket"
            )
        if position > loader.plan.length:
            raise ValueError(f"--position {position}: the epoch has {loader.plan.length} positions")
        if position:
            loader.load_state_dict({**loader.state_dict(), "position": position})
    report = ps.plan(loader, audit=audit)
    if as_json:
        output.emit({**asdict(report), "ok": report.ok})
    else:
        output.show(report)
    return 0 if report.ok else 1


def _check_options(
    order: str,
    source: tuple[str, ...],
    by: str | None,
    shares: tuple[float, ...],
    epoch_records: int | None,
) -> None:
    wants_column = order in ("weighted", "balanced")
    if wants_column != (by is not None):
        raise click.UsageError(
            f"--by COLUMN {'is needed' if wants_column else 'does not apply'} with --order {order}"
        )
    if order == "mixture" and len(shares) != len(source):
        raise click.UsageError(f"give --share once for each of the {len(source)} sources")
    if order != "mixture" and shares:
        raise click.UsageError(f"--share does not apply with --order {order}")
    if epoch_records is not None and not wants_column and order != "mixture":
        raise click.UsageError(f"--epoch-records does not apply with --order {order}")


def _shared(data: dict[str, ps.Dataset]) -> list[str]:
    """The columns that all sources have."""
    first, *others = (ds.schema.names for ds in data.values())
    return [name for name in first if all(name in names for names in others)]


_Sizes = list[int] | dict[int, int]


def _buckets(words: tuple[str, ...], batch_size: int | None) -> dict[str, _Sizes] | None:
    """The buckets of some `COLUMN=SIZES` or `COLUMN=SIZE:BATCH,…`, by column."""
    found: dict[str, _Sizes] = {}
    for word in words:
        name, _, sizes = word.rpartition("=")
        try:
            found[name] = _sizes(sizes.split(","))
        except ValueError:
            raise click.UsageError(
                f"--buckets {word!r} is not COLUMN=SIZES, such as tokens=128,512,2048, or with a batch size for each,"
                " tokens=128:64,512:16"
            ) from None
    if batch_size is None and not any(isinstance(sizes, dict) for sizes in found.values()):
        raise click.UsageError(
            "give --batch-size, or the batch size of each bucket, such as --buckets tokens=128:64,512:16"
        )
    return found or None


def _sizes(words: list[str]) -> _Sizes:
    if not any(":" in word for word in words):
        return [int(word) for word in words]
    pairs = [word.partition(":") for word in words]
    found = {int(size): int(batch) for size, _, batch in pairs}
    if len(found) < len(pairs):
        raise ValueError("the same size twice")
    return found


def _column(ds: Any, name: str | None) -> Any:
    """Return a column of one value per record, as an array with the type of the column."""
    import numpy as np

    import penstock as ps

    if name is None:
        return None
    if name not in ds.schema.names:
        known = ", ".join(ds.schema.names)
        raise click.UsageError(f"--by: there is no column {name!r}; there are: {known}")
    found = [batch[name] for batch in ps.Loader(ds, 4096, columns=[name])]
    if not all(isinstance(values, np.ndarray) and values.ndim == 1 for values in found):
        raise click.UsageError(f"--by: {name!r} does not have one value per record")
    return np.concatenate(found) if found else np.zeros(0)
