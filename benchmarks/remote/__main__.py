"""Starts the servers and the link, stores the objects, runs all rows in turns, and prints one table of ratios."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from benchmarks.remote import data  # noqa: E402
from benchmarks.remote.rows import BEST, ROWS, TRANSFER, WORKS, Goal, Row, Work  # noqa: E402
from benchmarks.remote.where import BATCH, NUM_BYTES, RECORD_BYTES, Where  # noqa: E402
from remote.servers.link import RATE, ROUND_TRIP, link  # noqa: E402
from remote.servers.nginx import nginx  # noqa: E402
from remote.servers.seaweed import seaweed  # noqa: E402

NEEDED_BYTES = 4 << 30
ROW_SECONDS = 120
SERVER = {"filer.maxMB": "1", "s3.cacheCapacityMB": "1024"}
"""Otherwise it reads 4 MiB from its files for each request, which takes 2 ms of a core: 256 requests then take longer on
two cores than their bytes on the link."""
Figures = dict[Row, list[dict[str, Any]]]


def arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remote", description=__doc__)
    parser.add_argument("--work", action="append", metavar="NAME", help="work that begins so")
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3)")
    parser.add_argument(
        "--minutes", type=float, default=5.5, help="begin no round that would end later than this"
    )
    parser.add_argument("--ours", action="store_true", help="without the rivals")
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="where the servers keep objects"
    )
    parser.add_argument(
        "--rivals",
        type=Path,
        metavar="FOLDER",
        default=ROOT / ".venv-rivals",
        help="the environments that benchmarks/setup made",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    return parser.parse_args()


def run(row_module: str, job: str, where: Where, python: Path) -> dict[str, Any]:
    """Run a row once, in a process of its own. The reply has "problem" if it failed."""
    shutil.rmtree(where.scratch, ignore_errors=True)
    Path(where.scratch).mkdir()
    return started(row_module, job, where, python)


def started(row_module: str, job: str, where: Where, python: Path) -> dict[str, Any]:
    """The same, with what is in the scratch folder."""
    if not python.exists():
        return {"problem": f"there is no {python}; benchmarks/setup makes it"}
    given = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "S3_"))}
    command = [python, "-m", "benchmarks.remote.work", row_module, job]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**given, **where.to_environment()},
            capture_output=True,
            text=True,
            timeout=ROW_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"not done after {ROW_SECONDS} s"}
    if done.returncode:
        return {"problem": (done.stderr.strip().splitlines() or ["no words"])[-1][:300]}
    return json.loads(done.stdout.strip().splitlines()[-1])


@contextmanager
def served(folder: Path, rivals: Path | None) -> Iterator[tuple[dict[str, Where], dict[str, str]]]:
    """The servers with all objects: where they are over the link and without it, and what could not be stored."""
    with ExitStack() as stack:
        for name in ("weed", "web", "local", "scratch"):
            (folder / name).mkdir()
        store = stack.enter_context(seaweed(folder / "weed", more=SERVER))
        bucket = stack.enter_context(store.bucket())
        files = stack.enter_context(nginx(folder / "web"))
        near = Where(
            store.endpoint, bucket, store.key_id or "", store.secret or "",
            str(folder / "scratch"), {},
        )  # fmt: skip

        def make(name: str) -> str | None:
            if rivals is None:
                return None
            return started("rivals", f"make {name}", near, rivals).get("problem")

        problems = data.store(store.client, near, folder / "local", files.files / bucket, make)
        far = stack.enter_context(link(store.endpoint))
        there = replace(store, endpoint=far.endpoint).client
        addresses = {
            format: [there.presigned(f"{bucket}/{name}", 86400) for name in near.names(format)]
            for format in ("tfrecord", "tar", "parquet")
        }
        yield (
            {
                "link": replace(near, endpoint=far.endpoint, addresses=addresses),
                "loopback": replace(near, endpoint=f"{files.endpoint}/strong"),
            },
            problems,
        )


# -- the table ------------------------------------------------------------------------------------


def speed(work: Work, figures: Sequence[dict[str, Any]]) -> float:
    """The median figure; higher is better."""
    if work.measure == "cpu":
        return median(one["bytes"] / one["cpu"] for one in figures)
    if work.measure == "seconds":
        return 1 / median(one["seconds"] for one in figures)
    return median(NUM_BYTES / one["seconds"] for one in figures)


def shown(work: Work, figures: Sequence[dict[str, Any]]) -> str:
    """The median figure in its unit."""
    found = speed(work, figures)
    if work.measure == "cpu":
        return f"{1e9 / found:.2f} s/GB"
    return f"{1000 / found:.0f} ms" if work.measure == "seconds" else f"{found / 1e6:.0f} MB/s"


def ratio(work: Work, goal: Goal, row: Row, found: Figures) -> float | None:
    """How a row compares with the goal's row: the median of the ratios of the rounds in which both ran."""
    rows = [one for one in found if one.work == (goal.work or work.name) and one != row]
    if goal.of == BEST:
        rows = sorted((r for r in rows if r.is_rival), key=lambda r: speed(work, found[r]))[-1:]
    else:
        rows = [r for r in rows if r.engine.partition(",")[0] == goal.of or r.engine == goal.of][:1]
    if not rows:
        return None
    pairs = zip(found[row], found[rows[0]], strict=False)
    return median(speed(work, [one]) / speed(work, [other]) for one, other in pairs)


def judged(work: Work, row: Row, found: Figures) -> str:
    """What a row must reach, and whether it does."""
    words: list[str] = []
    for goal in work.goals:
        if goal.seconds:
            value = 1 / speed(work, found[row])
            is_reached = value <= goal.seconds
            words.append(f"<= {1000 * goal.seconds:.0f} ms: {'yes' if is_reached else 'NO'}")
        elif (value := ratio(work, goal, row, found)) is not None:
            is_reached = value >= goal.ratio
            other = f"{goal.of}, {goal.work}" if goal.work else goal.of
            said = f">= {goal.ratio:.2f} x {other}: {'yes' if is_reached else 'NO'} ({value:.2f})"
            words.append(said)
    return "; ".join(words)


def lines(found: Figures) -> Iterator[list[str]]:
    """The lines of the table."""
    yield ["work", "engine", "median", "CPU s/GB", "requests", "RSS MB", "goal"]
    for work in WORKS:
        rows = [row for row in found if row.work == work.name]
        if rows and work.name == "take":
            least = BATCH * RECORD_BYTES / RATE + ROUND_TRIP
            yield [work.name, TRANSFER, f"{1000 * least:.0f} ms", "", "", "", ""]
        for row in rows:
            figures = found[row]
            is_judged = row.engine.startswith("penstock")
            yield [
                work.name,
                row.engine,
                shown(work, figures),
                f"{median(1e9 * one['cpu'] / one['bytes'] for one in figures):.2f}",
                str(figures[-1].get("requests", "")),
                f"{max(one['megabytes'] for one in figures):.0f}",
                judged(work, row, found) if is_judged else "",
            ]


def table(rows: Sequence[list[str]]) -> str:
    """A Markdown table that is aligned as plain text, too."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in (rows[0], rule, *rows[1:])
    )


def measure(
    asked: argparse.Namespace,
    rows: Sequence[Row],
    wheres: dict[str, Where],
    rivals: Path,
    begun: float,
) -> tuple[Figures, dict[str, str]]:
    """Run all rows in turns, round after round."""
    servers = {work.name: work.server for work in WORKS}
    found: Figures = {}
    problems: dict[str, str] = {}
    took = 0.0  # what the next round takes, about: without the rows that run only once
    for number in range(asked.rounds):
        start = time.monotonic()
        if number and start - begun + took > 60 * asked.minutes:
            break
        for row in rows:
            label = f"{row.work}, {row.engine}"
            if label in problems or (number and row.is_slow):
                continue
            python = rivals if row.module == "rivals" else Path(sys.executable)
            facts = run(row.module, row.job, wheres[servers[row.work]], python)
            if "problem" in facts:
                problems[label] = facts["problem"]
                continue
            found.setdefault(row, []).append(facts)
            seconds, cpu = facts["seconds"], facts["cpu"]
            print(f"round {number + 1}: {label}: {seconds:.2f} s, CPU {cpu:.2f} s", file=sys.stderr)
            start += seconds if row.is_slow else 0.0
        took = time.monotonic() - start
    return {row: found[row] for row in rows if row in found}, problems


def main() -> None:
    """Measure, print the table, and name what could not be measured."""
    asked = arguments()
    rows = [
        row
        for row in ROWS
        if not (asked.ours and row.is_rival)
        and (not asked.work or any(row.work.startswith(name) for name in asked.work))
    ]
    rivals = asked.rivals / "remote" / "bin" / "python"
    shm = Path("/dev/shm")
    has_room = shm.is_dir() and shutil.disk_usage(shm).free > 2 * NEEDED_BYTES
    parent = asked.data or (shm if has_room else Path(tempfile.gettempdir()))
    begun, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=parent, prefix="penstock-remote-") as name:
        makes = rivals if any(row.is_rival for row in rows) else None
        with served(Path(name), makes) as (wheres, problems):
            print(f"stored in {time.monotonic() - begun:.0f} s", file=sys.stderr)
            found, failed = measure(asked, rows, wheres, rivals, begun)
    print(
        f"link: {1000 * ROUND_TRIP:.0f} ms, {8 * RATE / 1e9:g} Gbit/s; {max(map(len, found.values()), default=0)} rounds in turns; "
        f"{os.cpu_count()} cores, load average {load:.1f} before, {os.getloadavg()[0]:.1f} after; "
        f"{time.monotonic() - begun:.0f} s\n"
    )
    print(table(list(lines(found))) + "\n")
    for work in WORKS:
        if any(row.work == work.name for row in found):
            print(f"{work.name}: {work.says}")
    for label, words in {**problems, **failed}.items():
        print(f"not measured: {label}: {words}")
    if asked.json:
        facts = [{"work": r.work, "engine": r.engine, "rounds": v} for r, v in found.items()]
        asked.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
