"""The programs of examples/, loaded unchanged, or with TensorFlow itself instead of penstock.tf."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from reading import ROOT

EXAMPLES = ROOT / "examples"
IMPORT = "import penstock.tf as tf\n"


def program(name: str, *, tensorflow: bool = False) -> Any:
    """A program as a module; its import line decides which library it uses."""
    path = EXAMPLES / f"{name}.py"
    source = path.read_text()
    if tensorflow:
        assert source.count(IMPORT) == 1, f"{path} imports penstock.tf in another way"
        source = source.replace(IMPORT, "import tensorflow as tf\n")
    module = ModuleType(f"examples_{name}_{'tensorflow' if tensorflow else 'penstock'}")
    exec(compile(source, str(path), "exec"), module.__dict__)
    return module


def names() -> list[str]:
    return sorted(path.stem for path in Path(EXAMPLES).glob("*.py"))
