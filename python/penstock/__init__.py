"""penstock opens the training data people already have, in place.

    >>> import penstock as ps
    >>> _ = ps.write({"id": [1, 2, 3]}, "numbers.tfrecord", overwrite=True)
    >>> ps.open("numbers.tfrecord")[2]
    {'id': 3}

Modules that reading needs are imported immediately, all others at their first use. `__init__.pyi` lists the public
names.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any


def _public_names() -> dict[str, str]:
    """Each public name, and the module that it is imported from."""
    table = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = [line for line in table.body if isinstance(line, ast.ImportFrom)]
    return {alias.name: line.module or "" for line in lines for alias in line.names}


_HOMES = _public_names()
__all__ = sorted(_HOMES)  # noqa: PLE0605 # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("penstock")
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    home = _HOMES[name]
    value = vars(import_module(home)).get(name) or import_module(f"{home}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


import_module("penstock.datasets.open")
