"""Run one target: `python -m fuzz walk --runs 100000 --seed 1`."""

from __future__ import annotations

import argparse
import faulthandler
import functools
import random
import resource
import sys
import time
import traceback

import pyarrow as pa

from fuzz import bombs
from fuzz.mutate import mutated
from fuzz.targets import ALLOWED, TARGETS

SLOW_SECONDS = 2.0
GROWN_MIB = 256


def main() -> int:
    """Run a target. Returns 0 if every run ended in data, or in an error that names what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m fuzz")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="repeat this run alone")
    asked = parser.parse_args()
    # Show the stack also after a crash or a hang.
    faulthandler.enable()
    print(f"fuzz {asked.target}: seed {asked.seed}, {asked.runs} runs", flush=True)
    target = TARGETS[asked.target]
    seeds = target.seeds()
    # pyarrow imports pandas, if it is installed, when it first makes Python values.
    pa.array([{"a": b""}]).to_pylist()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hidden = functools.partial(bombs.of, target.bombs) if target.bombs else None
    accepted = 0
    slowest = (0.0, 0)
    runs = range(asked.runs) if asked.only is None else (asked.only,)
    for number in runs:
        # Every run has its own random generator, so that it can be repeated without the others.
        rng = random.Random(asked.seed << 32 | number)
        data = mutated(rng, seeds, target.lies, hidden)
        if not number % 1000:
            faulthandler.dump_traceback_later(60, exit=True)
        start = time.process_time()
        try:
            target.run(data, rng)
            accepted += 1
        except ALLOWED as error:
            if type(error).__name__ == "InternalError":
                return failed(asked.target, asked.seed, number, data)
        except BaseException:
            return failed(asked.target, asked.seed, number, data)
        slowest = max(slowest, (time.process_time() - start, number))
    faulthandler.cancel_dump_traceback_later()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(
        f"{accepted} accepted, slowest {1000 * slowest[0]:.0f} ms (run {slowest[1]}), "
        f"memory grew by {grown} MiB"
    )
    return int(slowest[0] > SLOW_SECONDS or grown > GROWN_MIB)


def failed(target: str, seed: int, number: int, data: bytes) -> int:
    """Report a failed run and how to repeat it."""
    traceback.print_exc()
    print(f"python -m fuzz {target} --seed {seed} --only {number}")
    print(f"{len(data)} bytes: {data[:400].hex()}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
