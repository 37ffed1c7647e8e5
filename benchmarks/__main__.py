"""Runs the benchmarks and prints one table: ``python -m benchmarks``. The README explains how to read the table."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import data as benchmark_data
from benchmarks import report
from benchmarks.cases import CASES, Case
from benchmarks.engines import ENGINES
from benchmarks.rounds import Row, measure, rows_of

ROOT = Path(__file__).parent.parent
RIVALS = ("tensorflow", "others", "ffcv", "mxnet")
"""The environments that benchmarks/setup makes."""


def arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="penstock beside its rivals and the limits."
    )
    parser.add_argument(
        "--case",
        action="append",
        metavar="NAME",
        help="cases whose name begins so (may be repeated); all when not given",
    )
    parser.add_argument(
        "--engine",
        action="append",
        metavar="NAME",
        choices=ENGINES,
        help="these engines only (may be repeated)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each case (5)")
    parser.add_argument("--quick", action="store_true", help="two rounds: a look, not a result")
    parser.add_argument(
        "--quiet",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="before each run wait up to so long for other processes to leave the "
        "cores alone, and repeat disturbed runs",
    )
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: figures by CPU time, for a machine that is never quiet; rows of "
        "several threads then show their cost, not their speed",
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="share of the records, to fit a smaller machine (1.0)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="where the data is made and kept; by default in memory for the run",
    )
    parser.add_argument(
        "--disk",
        type=Path,
        metavar="FOLDER",
        default=ROOT / "benchmarks" / "data",
        help="where the case that writes to a disk writes",
    )
    parser.add_argument("--python", type=Path, metavar="PATH", help="interpreter with penstock")
    parser.add_argument(
        "--rivals",
        type=Path,
        metavar="FOLDER",
        default=ROOT / ".venv-rivals",
        help="the environments that benchmarks/setup made",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    parser.add_argument("--list", action="store_true", help="name the cases and their rows, end")
    return parser.parse_args()


def penstock_python(given: Path | None) -> Path:
    """The interpreter that has penstock: the one given, this one, or that of `.venv`."""
    candidates = [given] if given else [Path(sys.executable), ROOT / ".venv" / "bin" / "python"]
    test = ["-c", "import penstock"]
    for python in candidates:
        if (
            python.exists()
            and not subprocess.run([python, *test], check=False, capture_output=True).returncode
        ):
            return python
    print("penstock cannot be imported; its rows will be missing (see --python)", file=sys.stderr)
    return candidates[0]


def chosen_cases(names: list[str] | None) -> list[Case]:
    """The requested cases, in the order of the table."""
    cases = [c for c in CASES if not names or any(c.name.startswith(n) for n in names)]
    if not cases:
        sys.exit(f"no such case; there are: {', '.join(c.name for c in CASES)}")
    return cases


def chosen_engines(names: list[str] | None) -> list[str]:
    """The requested engines, in the order of the table."""
    return [e for e in ENGINES if not names or e in names]


def data_folder(args: argparse.Namespace, cases: list[Case]) -> Path:
    """The folder for the data. Ends the program if there is not enough space."""
    sizes = {c.size for c in cases if c.size}
    folder = args.data or benchmark_data.default_folder(sizes, args.scale)
    folder.mkdir(parents=True, exist_ok=True)
    needed = benchmark_data.needed_bytes(sizes, args.scale)
    if shutil.disk_usage(folder).free < needed and not any(folder.iterdir()):
        sys.exit(f"{folder}: {needed / 1e9:.1f} GB are needed; shrink with --scale")
    return folder


def tmpfs_folder(folder: Path) -> Path:
    """A folder in memory, for the case that writes to one."""
    shm = Path("/dev/shm")
    target = (shm / "penstock-written") if shm.is_dir() else folder / "written"
    target.mkdir(exist_ok=True)
    return target


def run_case(
    case: Case,
    args: argparse.Namespace,
    pythons: dict[str, Path],
    folder: Path,
    environment: dict[str, str],
) -> tuple[list[Row], list[dict[str, Any]]]:
    """Measures one case and computes its lines of the table."""
    data = None
    if case.size:
        data = benchmark_data.ensure(folder, case.size, args.scale, pythons["others"])
    rows = rows_of(case, chosen_engines(args.engine), args.clock)
    measure(case, rows, pythons, data, 2 if args.quick else args.rounds, environment, args.quiet)
    if data and case.size == "large":
        data.remove_copies()
    return rows, [report.facts(r, rows, data) for r in rows if r.rounds]


def main() -> None:
    """Measures, prints the table, and reports what could not be measured."""
    args = arguments()
    cases = chosen_cases(args.case)
    if args.list:
        for case in cases:
            print(f"{case.name}: {case.says}")
            for row in rows_of(case, chosen_engines(args.engine)):
                print(f"    {row.label}")
        return
    pythons = {
        "penstock": penstock_python(args.python),
        **{v: args.rivals / v / "bin" / "python" for v in RIVALS},
    }
    folder = data_folder(args, cases)
    tmpfs = tmpfs_folder(folder)
    args.disk.mkdir(parents=True, exist_ok=True)
    environment = {"BENCHMARKS_TMPFS": str(tmpfs), "BENCHMARKS_DISK": str(args.disk)}
    before = report.machine()
    facts: list[dict[str, Any]] = []
    lines: list[list[str]] = []
    problems: list[str] = []
    try:
        for case in cases:
            rows, found = run_case(case, args, pythons, folder, environment)
            facts += found
            lines += [report.cells(f, case) for f in found]
            problems += [f"{r.case.name}, {r.label}: {r.problem}" for r in rows if r.problem]
    finally:
        shutil.rmtree(tmpfs, ignore_errors=True)
        if not args.data and folder.is_relative_to("/dev/shm"):
            shutil.rmtree(folder, ignore_errors=True)
    print_results(before, cases, facts, lines, problems, args)


def print_results(
    before: dict[str, Any],
    cases: list[Case],
    facts: list[dict[str, Any]],
    lines: list[list[str]],
    problems: list[str],
    args: argparse.Namespace,
) -> None:
    """Prints the machine's facts, the table, the legend, and what went wrong."""
    load = os.getloadavg()[0]
    busy = max((f["others_cores"] for f in facts), default=0.0)
    print(
        f"{before['cpu']}, {before['cores']} cores, {before['system']}; "
        f"load average {before['load_average'][0]} before, {load:.2f} after; "
        f"other processes used up to {busy:.2f} cores (median of a row)"
    )
    print(
        f"{2 if args.quick else args.rounds} rounds, rows in turn; scale {args.scale:g}; "
        f"{'CPU time, NOT speed' if args.clock == 'cpu' else 'wall time'}\n"
    )
    print(report.table(lines))
    print()
    for case in cases:
        print(f"{case.name}: {case.says}")
    reached = [g["reached"] for f in facts for g in f["goals"]]
    print(f"\ngoals reached: {reached.count(True)} of {len(reached)}")
    for problem in problems:
        print(f"not measured: {problem}")
    if args.json:
        args.json.write_text(
            json.dumps(
                {
                    "machine": before,
                    "rounds": 2 if args.quick else args.rounds,
                    "scale": args.scale,
                    "rows": facts,
                    "not_measured": problems,
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
