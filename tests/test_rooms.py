"""The order of the packages (rooms): a file imports only from its own room and from lower ones, without cycles.

The table is in docs/architecture.md; every file must belong to a row of it.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from reading import ROOT

PACKAGE = ROOT / "python" / "penstock"
ROW = re.compile(r"^\| `(\w+(?:/|\.py))` \|", re.MULTILINE)
MOST_AT_THE_TOP = 10


@cache
def rooms() -> dict[str, int]:
    """Each room in the documentation's table, with its row, counted from the top."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.partition("\n## Rooms\n")[2].partition("\n## ")[0]
    return {name.rstrip("/"): row for row, name in enumerate(ROW.findall(table))}


def room_of(file: str) -> str:
    """The room of a file, named as in `formats/__init__.py`."""
    return file.split("/", maxsplit=1)[0]


def files() -> list[str]:
    every = (str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))
    return sorted(name for name in every if name != "__init__.py")


def file_of(name: str) -> str | None:
    """The file of a dotted module name under penstock, or None if there is none."""
    stem = PACKAGE.parent.joinpath(*name.split("."))
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.exists() and path != PACKAGE / "__init__.py":
            return str(path.relative_to(PACKAGE))
    return None


@cache
def imports(file: str) -> frozenset[str]:
    """The files that a file imports: at load time, inside functions, and only for types."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((PACKAGE / file).read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: relative imports hide the room"
            base = node.module or ""
            full = [f"{base}.{alias.name}" for alias in node.names]
            names = [one if file_of(one) else base for one in full]
        found |= {other for one in names if one.startswith("penstock.") and (other := file_of(one))}
    return frozenset(found - {file})


def is_deliberate(file: str, other: str) -> bool:
    """Whether this is the only allowed upward import, with which the loader imports an adapter."""
    return file == "loader/loader.py" and room_of(other) == "adapters"


def test_every_file_has_a_room_and_every_room_has_files() -> None:
    found = {room_of(name) for name in files()}
    assert found == rooms().keys()


def test_few_modules_are_at_the_top() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_AT_THE_TOP


def test_imports_go_down() -> None:
    wrong = [
        f"{file} imports {other}"
        for file in files()
        for other in sorted(imports(file))
        if rooms()[room_of(other)] < rooms()[room_of(file)] and not is_deliberate(file, other)
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_have_no_cycles() -> None:
    done: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above[above.index(name) :], name))
        if name in done:
            return
        for other in sorted(imports(name)):
            if not is_deliberate(name, other):
                walk(other, (*above, name))
        done.add(name)

    for name in files():
        walk(name, ())


def test_private_modules_are_imported_by_their_own_folder() -> None:
    wrong = [
        f"{file} imports {other}"
        for file in files()
        for other in sorted(imports(file))
        if Path(other).name.startswith("_")
        and Path(other).name not in ("__init__.py", "__main__.py")
        and Path(other).parent != Path(file).parent
    ]
    assert not wrong, "\n".join(wrong)


def test_the_command_line_uses_only_public_names() -> None:
    """The command line and the benchmarks show that the public names are sufficient."""
    wrong = []
    for folder in ("cli", "bench"):
        own = rf"from penstock\.{folder}\b"
        public = re.compile(
            rf"^({own}|import penstock( as ps)?$|from penstock import |from penstock\.storage import )"
        )
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    text = ast.unparse(node)
                    if "penstock" in text and not public.match(text):
                        wrong.append(f"{path.relative_to(PACKAGE)}: {text}")
                    private = "import _" in text or "._" in text
                    if "penstock" in text and private and not re.match(own, text):
                        wrong.append(f"{path.relative_to(PACKAGE)}: {text}")
    assert not wrong, "\n".join(wrong)


def test_wire_and_kernels_know_nothing_of_python() -> None:
    for folder in ("wire", "kernels"):
        for path in sorted((ROOT / "rust" / "src" / folder).rglob("*.rs")):
            text = path.read_text()
            assert "pyo3" not in text, path
            assert "std::fs" not in text, path


def test_wire_does_not_use_kernels() -> None:
    for path in sorted((ROOT / "rust" / "src" / "wire").rglob("*.rs")):
        assert "crate::kernels" not in path.read_text(), path
