"""The option `--on`. Ray prints messages about dead workers to stdout; a command prints them to stderr."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import click


class _WithoutRay:
    """stdout, but what the threads of Ray print goes to stderr."""

    def __init__(self, stdout: Any) -> None:
        self._stdout = stdout

    def __getattr__(self, name: str) -> Any:
        is_rays = threading.current_thread().name.startswith("ray_")
        return getattr(sys.stderr if is_rays else self._stdout, name)


@contextmanager
def _apart() -> Generator[None]:
    stdout, was_connected = sys.stdout, _is_connected()
    sys.stdout = _WithoutRay(stdout)
    try:
        yield
    finally:
        if _is_connected() and not was_connected:
            stdout.flush()
            with redirect_stdout(sys.stderr):  # it prints the messages that are left
                sys.modules["ray"].shutdown()
        # What a thread of Ray prints even later goes there, too.
        sys.stdout = _WithoutRay(stdout)


def _is_connected() -> bool:
    ray: Any = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


def _begin(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    del option
    if value is not None:
        context.with_resource(_apart())
    return value


on_option = click.option(
    "--on",
    metavar="ray|ray://HOST:PORT",
    callback=_begin,
    help="Do the work on a cluster of Ray, a file at a time. [default: on this machine]",
)
"""Of each command that runs long over shards that exist."""
