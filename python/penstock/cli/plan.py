"""`penstock plan`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from penstock import describe
from penstock.cli import output
from penstock.cli.options import json_option, misuse, opened, reading, source_argument

if TYPE_CHECKING:
    import penstock as ps

_ORDERS = ("sequential", "shuffled", "blocked", "buffered", "interleaved")
_MOST_RANKS = 64


@click.command(
    "plan",
    epilog="""\b
Examples:
  penstock plan train.tfrecord --batch-size 256 --world-size 8
  penstock plan 'train-*.tfrecord' --batch-size 64 --order shuffled --seed 1 --audit
  penstock plan train.tfrecord --batch-size 32 --position 4096 --uneven pad --json
""",
)
@source_argument
@click.option("--batch-size", type=click.IntRange(min=1), required=True, help="Records of a batch.")
@click.option(
    "--world-size", type=click.IntRange(min=1), default=1, show_default=True, help="Ranks."
)
@click.option(
    "--order", type=click.Choice(_ORDERS), default="shuffled", show_default=True, help="The order."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Its seed.")
@click.option(
    "--buffer",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="Records that the order buffered holds.",
)
@click.option(
    "--epoch", type=click.IntRange(min=0), default=0, show_default=True, help="Which epoch."
)
@click.option(
    "--position",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Go on behind so many records, as the `position` of a state says.",
)
@click.option(
    "--uneven",
    type=click.Choice(["wrap", "drop", "pad"]),
    default="wrap",
    show_default=True,
    help="What becomes of records that ranks cannot share evenly.",
)
@click.option("--drop-last", is_flag=True, help="Leave the last step out if it is not full.")
@click.option(
    "--audit", is_flag=True, help="Count how often each record comes. Exit status 1 if not as told."
)
@reading("format", "read", "index", "threads")
@json_option
def command(
    source: tuple[str, ...],
    batch_size: int,
    world_size: int,
    order: str,
    seed: int,
    buffer: int,
    epoch: int,
    position: int,
    uneven: str,
    drop_last: bool,
    audit: bool,
    format: str | None,
    read: tuple[str, ...],
    index: str,
    threads: int | None,
    as_json: bool,
) -> int:
    """Print which records each rank reads in an epoch, without reading any.

    The same arithmetic decides it in training, so what stands here is what `penstock.Loader` does
    with the same words.
    """
    import penstock as ps

    ds = opened(source, format=format, read=read, index=index)
    with misuse():
        loader = ps.Loader(
            ds,
            batch_size,
            order=_order(order, seed, buffer),
            world_size=world_size,
            uneven=uneven,
            drop_last=drop_last,
            threads=threads,
            epoch=epoch,
        )
        if position > loader.plan.length:
            raise ValueError(f"--position {position}: the epoch has {loader.plan.length} positions")
        loader.load_state_dict({**loader.state_dict(), "position": position})
    report = ps.plan(loader, audit=audit)
    if as_json:
        output.emit({**asdict(report), "ok": report.ok})
    else:
        _show(report)
    return 0 if report.ok else 1


def _order(name: str, seed: int, buffer: int) -> ps.Order:
    import penstock as ps

    made: dict[str, ps.Order] = {
        "sequential": ps.Sequential(),
        "shuffled": ps.Shuffled(seed),
        "blocked": ps.Blocked(seed),
        "buffered": ps.Buffered(seed, buffer),
        "interleaved": ps.Interleaved(seed=seed),
    }
    return made[name]


def _show(report: ps.PlanReport) -> None:
    start, stop = report.dropped
    filled = sum(rank.num_filled for rank in report.ranks)
    words = [f"{name} {value}" for name, value in report.order.items() if name != "name"]
    pairs = [
        ("records", describe.count(report.num_records)),
        ("order", ", ".join([str(report.order["name"]), *words])),
        ("epoch", f"{report.epoch}, from position {describe.count(report.position)}"),
        ("steps", f"{describe.count(report.num_steps)} on every rank"),
        ("a step", f"{len(report.ranks)} ranks of {describe.count(report.batch_size)} records"),
        (
            "dropped",
            f"{stop - start} records, at positions {start} to {stop - 1}"
            if stop > start
            else "none",
        ),
        (_FILLED[report.uneven], describe.count(filled) if filled else "none"),
    ]
    right = ("rank", "batches", "records", "files", "bytes")
    shown = output.table(
        "rank", "batches", "records", "files", "bytes", "begins", "ends", right=right
    )
    for rank in report.ranks[:_MOST_RANKS]:
        shown.add_row(*_row(rank))
    parts: list[Any] = [output.facts(pairs), "", shown]
    if len(report.ranks) > _MOST_RANKS:
        parts.append(
            output.dim(f"and {len(report.ranks) - _MOST_RANKS} more ranks: --json has all")
        )
    output.show(*parts)
    if report.coverage is not None:
        click.echo()
        for line in str(report.coverage).splitlines():
            click.echo(describe.escape(line))


_FILLED = {
    "wrap": "read again",
    "pad": "masked",
    "drop": "filled up",
}


def _row(rank: Any) -> list[str]:
    return [
        str(rank.rank),
        describe.count(rank.num_batches),
        describe.count(rank.num_records),
        "–" if rank.num_shards is None else describe.count(rank.num_shards),
        "–" if rank.num_bytes is None else "~" + describe.size(rank.num_bytes),
        *(", ".join(map(str, few)) + " …" for few in (rank.first_batch, rank.last_batch)),
    ]
