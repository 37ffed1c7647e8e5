"""Writes the table of what penstock.tf covers into docs/reference/tensorflow.md, by comparing it with
TensorFlow's own modules and signatures: `python docs/coverage.py`, where TensorFlow is installed.
A test runs it and finds nothing to change."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock.tf as ours
from penstock.tf.missing import IN_TENSORFLOW, in_numpy, nearest

PAGE = Path(__file__).resolve().parent / "reference" / "tensorflow.md"
BLOCK = re.compile(r"(<!-- coverage -->\n).*?(<!-- end of coverage -->)", re.DOTALL)
# Of tf.train only the messages concern data; of tf itself and tf.math only what is there is listed.
SPACES = (
    "tf.train",
    "tf.io",
    "tf.io.gfile",
    "tf.data",
    "tf.data.Dataset",
    "tf.data.experimental",
    "tf.image",
    "tf.random",
    "tf.errors",
    "tf.sparse",
    "tf.ragged",
    "tf.RaggedTensor",
    "tf.sparse.SparseTensor",
    "tf.strings",
    "tf.lookup",
    "tf.audio",
    "tf.signal",
)
LARGE = ("tf", "tf.math")
MESSAGES = re.compile("Example|Feature|List$")


def find(root: Any, space: str) -> Any:
    """The module or class of that name, or None."""
    found = root
    for part in space.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def public(space: str, module: Any) -> Iterator[str]:
    """The public names of a module or class that concern data."""
    for name in sorted(dir(module)):
        if name.startswith("_") or inspect.ismodule(getattr(module, name, None)):
            continue
        if space != "tf.train" or MESSAGES.search(name):
            yield name


def parameters(value: Any) -> list[str]:
    """The parameters of a function, or of a class's constructor, without self; none where it does not say."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return []
    return [
        name
        for name, p in signature.parameters.items()
        if name not in {"self", "cls"} and p.kind not in {p.VAR_KEYWORD, p.VAR_POSITIONAL}
    ]


def takes_any(value: Any) -> bool:
    """Whether a function takes any keywords, or does not say which."""
    try:
        kinds = [p.kind for p in inspect.signature(value).parameters.values()]
    except (TypeError, ValueError):
        return True
    return inspect.Parameter.VAR_KEYWORD in kinds


def lacking(theirs: Any, mine: Any) -> list[str]:
    """The parameters that TensorFlow has and penstock has not."""
    if not callable(theirs) or takes_any(mine):
        return []
    known = parameters(mine)
    return [name for name in parameters(theirs) if name not in known]


def section(space: str, theirs: Any, mine: Any) -> str:
    """One namespace: what is covered, what of it is not, and the nearest way to the rest."""
    names = list(public(space, theirs))
    covered = [name for name in names if hasattr(mine, name)]
    absent = [name for name in names if name not in covered]
    words = [f"### `{space}`\n"]
    words.append(
        f"{len(covered)} of {len(names)}: {', '.join(f'`{n}`' for n in covered) or 'none'}.\n"
    )
    less = {name: lacking(getattr(theirs, name), getattr(mine, name)) for name in covered}
    words += [
        f"- `{name}` without {', '.join(f'`{p}`' for p in gone)}"
        for name, gone in less.items()
        if gone
    ]
    if space in LARGE:
        words.append(
            f"\nOf the rest: {in_numpy('NAME')}, where NumPy has it; else {IN_TENSORFLOW}.\n"
        )
    elif absent:
        ways: dict[str, list[str]] = {}
        for name in absent:
            ways.setdefault(nearest(f"{space}.{name}"), []).append(f"`{name}`")
        words.append("\n| not there | nearest way |\n|---|---|")
        words += [f"| {', '.join(group)} | {way} |" for way, group in ways.items()]
        words.append("")
    return "\n".join(words) + "\n"


def table(theirs: Any) -> str:
    """All namespaces, in Markdown."""
    return f"Compared with TensorFlow {theirs.__version__}.\n\n" + "".join(
        section(space, find(theirs, space), find(ours, space)) for space in (*SPACES, *LARGE)
    )


def renewed(text: str, theirs: Any) -> str:
    """The page with the table as it is now."""
    return BLOCK.sub(lambda found: found[1] + table(theirs) + found[2], text)


if __name__ == "__main__":
    page = PAGE.read_text()
    new = renewed(page, importlib.import_module("tensorflow"))
    PAGE.write_text(new)
