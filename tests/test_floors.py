"""The floors of the house: a file imports from floors below its own, and nothing in a circle.

The table is the one in docs/architecture.md; a file that is in no row of it belongs nowhere.
"""

from __future__ import annotations

import ast
import fnmatch
import re
from pathlib import Path

from reading import ROOT

PACKAGE = ROOT / "python" / "penstock"
ROW = re.compile(r"^\|\s*F(\d+)\s*\|([^|]*)\|", re.MULTILINE)
NAME = re.compile(r"[\w*/.-]+(?:\.py|/)")


def floors() -> list[tuple[str, int]]:
    """(pattern of files under python/penstock, floor), from the table in the documentation."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows: list[tuple[str, int]] = []
    for number, cell in ROW.findall(text):
        folder = ""
        for name in NAME.findall(cell):
            if name.startswith("rust/"):
                continue
            # "formats/tfrecord.py parquet.py": later names of a cell are in the same folder.
            if "/" in name:
                folder = name.rsplit("/", 1)[0] + "/"
                name = name.rsplit("/", 1)[1]
            rows.append((folder + (name or "*"), int(number)))
    return rows


FLOORS = floors()


def floor_of(module: str) -> int | None:
    """The floor of a file, named as in `formats/arrow.py`; the most exact row counts."""
    matches = [(len(p), floor) for p, floor in FLOORS if fnmatch.fnmatch(module, p)]
    return max(matches)[1] if matches else None


def files() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def file_of(name: str) -> str | None:
    """The file of a dotted module name under penstock, or None if there is none."""
    stem = PACKAGE.parent.joinpath(*name.split("."))
    for path in (stem.with_suffix(".py"), stem / "__init__.py"):
        if path.exists() and path != PACKAGE / "__init__.py":
            return str(path.relative_to(PACKAGE))
    return None


def is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def imports(path: Path, *, lazy: bool) -> set[str]:
    """The penstock files that a file imports; `lazy` counts those inside functions, too."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if is_typing_only(child):
                continue
            if not lazy and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom):
                assert not child.level, f"{path}: relative imports hide the floor"
                base = child.module or ""
                names = [base, *(f"{base}.{alias.name}" for alias in child.names)]
            else:
                visit(child)
                continue
            for name in names:
                if name.startswith("penstock.") and (file := file_of(name)) is not None:
                    found.add(file)

    visit(ast.parse(path.read_text()))
    found.discard(str(path.relative_to(PACKAGE)))
    return found


def test_every_file_has_a_floor() -> None:
    homeless = [name for p in files() if floor_of(name := str(p.relative_to(PACKAGE))) is None]
    assert not homeless, f"in no row of docs/architecture.md: {homeless}"


def test_imports_go_down() -> None:
    wrong = []
    for path in files():
        name = str(path.relative_to(PACKAGE))
        for other in imports(path, lazy=True):
            mine, its = floor_of(name), floor_of(other)
            if mine is not None and its is not None and its > mine:
                wrong.append(f"{name} (F{mine}) imports {other} (F{its})")
    assert not wrong, "\n".join(wrong)


def test_there_are_no_circles() -> None:
    graph = {str(p.relative_to(PACKAGE)): imports(p, lazy=False) for p in files()}
    done: set[str] = set()

    def walk(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, " -> ".join((*above[above.index(name) :], name))
        if name in done:
            return
        for other in sorted(graph.get(name, ())):
            walk(other, (*above, name))
        done.add(name)

    for name in sorted(graph):
        walk(name, ())


def test_people_get_only_what_is_public() -> None:
    """The command line and the benches prove that the public names are enough."""
    wrong = []
    for folder in ("cli", "bench"):
        own = rf"from penstock\.{folder}\b"
        public = re.compile(rf"^({own}|import penstock( as ps)?$|from penstock import )")
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


def test_the_lowest_floors_know_nothing_of_python() -> None:
    for folder in ("wire", "kernels"):
        for path in sorted((ROOT / "rust" / "src" / folder).rglob("*.rs")):
            text = path.read_text()
            assert "pyo3" not in text, path
            assert "std::fs" not in text, path


def test_wire_does_not_use_kernels() -> None:
    for path in sorted((ROOT / "rust" / "src" / "wire").rglob("*.rs")):
        assert "crate::kernels" not in path.read_text(), path
