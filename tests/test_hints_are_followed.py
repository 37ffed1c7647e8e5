"""Hints are true: the input that raises one is read, or written, once its advice is followed.

All hints of the code base are collected from its source. Each is followed by a case below, or is named in
hints_without_a_case.txt; so a new hint without a case fails here.
"""

from __future__ import annotations

import ast
import gzip
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from reading import ROOT

WITHOUT = Path(__file__).with_name("hints_without_a_case.txt")
Step = Callable[[], Any]


def hints() -> set[str]:
    """The source text of every hint= of the package."""
    found: set[str] = set()
    for path in sorted((ROOT / "python" / "penstock").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            words = node.keywords if isinstance(node, ast.Call) else []
            values = [word.value for word in words if word.arg == "hint"]
            found |= {ast.unparse(v) for v in values if not _says_nothing(v)}
    return found


def _says_nothing(value: ast.expr) -> bool:
    """None, or what another function was given."""
    return (isinstance(value, ast.Constant) and value.value is None) or isinstance(value, ast.Name)


def _twice(call: Callable[..., Any], *given: Any, **advice: Any) -> tuple[Step, Step]:
    """A call, and the same with the keywords that the hint names."""
    return (lambda: call(*given)), (lambda: call(*given, **advice))


def _rows(*given: Any, **options: Any) -> list[Any]:
    return list(ps.open(*given, **options))


def lists_of_lists() -> tuple[Step, Step]:
    data = {"a": [[[1], [2, 3]]]}
    return (
        lambda: ps.write(data, "a.tfrecord", payload="example"),
        lambda: ps.write(data, "a.tfrecord", payload="sequence"),
    )


def wrong_payload() -> tuple[Step, Step]:
    data = {"a": [1], "b": [2]}
    return (
        lambda: ps.write(data, "a.msgpack", payload="raw"),
        lambda: ps.write(data, "a.msgpack", payload="map"),
    )


def hdf5_name() -> tuple[Step, Step]:
    return (
        lambda: ps.write({"a/./b": [1]}, "a.h5"),
        lambda: ps.write({"b": [1]}, "b.h5"),
    )


def twins() -> tuple[Step, Step]:
    batch = pa.record_batch([pa.array([1]), pa.array([2])], ["a", "a"])
    with pa.OSFile("a.arrow", "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write(batch)
    return (lambda: ps.convert("a.arrow", "b.parquet")), (lambda: list(ps.open("a.arrow").scan()))


def foreign_checksums() -> tuple[Step, Step]:
    head = (1).to_bytes(8, "little") + bytes(4)
    Path("a").write_bytes((head + b"x" + bytes(4)) * 3)
    return _twice(_rows, "a", format="tfrecord", checksums="none", raw=True)


def unequal_arrays() -> tuple[Step, Step]:
    np.savez("a.npz", a=np.arange(3), b=np.arange(2), c=np.arange(3))
    return _twice(_rows, "a.npz", arrays=["a", "c"])


def unequal_datasets() -> tuple[Step, Step]:
    with h5py.File("a.h5", "w") as file:
        for name, count in (("a", 3), ("b", 2), ("c", 3)):
            file[name] = np.arange(count)
    return _twice(_rows, "a.h5", datasets=["a", "c"])


def unknown_field() -> tuple[Step, Step]:
    ps.write({"a": [1]}, "a.tfrecord")
    return (
        lambda: ps.replace_fields("a.tfrecord", {"b": [1]}, into="b.tfrecord"),
        lambda: ps.add_fields("a.tfrecord", {"b": [1]}, into="b.tfrecord"),
    )


def packed() -> tuple[Step, Step]:
    pq.write_table(pa.table({"a": [1]}), "plain.parquet")
    Path("a.parquet").write_bytes(gzip.compress(Path("plain.parquet").read_bytes()))

    def unpack() -> None:
        Path("b.parquet").write_bytes(gzip.decompress(Path("a.parquet").read_bytes()))
        assert _rows("b.parquet") == [{"a": 1}]

    return (lambda: _rows("a.parquet")), unpack


def no_python_value() -> tuple[Step, Step]:
    days = pa.array([date.max.toordinal()], pa.int32()).cast(pa.date32())
    pq.write_table(pa.table({"a": days}), "a.parquet")
    return (lambda: ps.open("a.parquet")[0]), (lambda: ps.open("a.parquet").take([0]))


def missing_number() -> tuple[Step, Step]:
    ps.write({"a": [1, None]}, "a.parquet")

    def load(**options: Any) -> Any:
        return list(ps.Loader(ps.open("a.parquet"), 2, **options))

    return _twice(load, fill={"a": 0})


def numbers_of_two_kinds() -> tuple[Step, Step]:
    ps.write({"a": [1]}, "a.tfrecord"), ps.write({"a": [0.5]}, "b.tfrecord")
    Path("c.tfrecord").write_bytes(
        Path("a.tfrecord").read_bytes() + Path("b.tfrecord").read_bytes()
    )
    return _twice(_rows, "c.tfrecord", schema=pa.schema([("a", pa.float64())]))


def files_of_two_kinds() -> tuple[Step, Step]:
    ps.write({"a": [1]}, "a.tfrecord"), ps.write({"a": [0.5]}, "b.tfrecord")
    names = ["a.tfrecord", "b.tfrecord"]
    return (
        lambda: ps.open(names, infer_records="all"),
        lambda: _rows(names, schema=pa.schema([("a", pa.float64())])),
    )


def class_names_of_bytes() -> tuple[Step, Step]:
    labels = pa.array(["a", "b"]).dictionary_encode()
    ps.write({"label": labels, "x": [1, 2]}, "a.parquet")
    names = {"label": ["a", "\udcff"]}  # as `os.listdir` gives a folder whose name is no UTF-8
    return (
        lambda: ps.Loader(ps.open("a.parquet"), 2, class_names=names),
        lambda: list(ps.Loader(ps.open("a.parquet", columns=["x"]), 2)),
    )


CASES: dict[str, Callable[[], tuple[Step, Step]]] = {
    "'payload=\"sequence\"'": lists_of_lists,
    "'payload=\"map\"'": wrong_payload,
    "'rename it'": hdf5_name,
    "'scan() gives both'": twins,
    '\'open(..., format="tfrecord", checksums="none")\'': foreign_checksums,
    "f'open(..., arrays={most[:8]!r})'": unequal_arrays,
    "f'open(..., datasets={most[:8]!r}), or names of groups'": unequal_datasets,
    "'add_fields adds new ones'": unknown_field,
    "'unpack it first'": packed,
    "'leave it out: columns=[...]'": class_names_of_bytes,
    "'take or scan, which give it as Arrow'": no_python_value,
    "'fill={name: value}, or a default in the schema of open'": missing_number,
    "f'open(..., schema=...) {_how_to_read([kind[1] for kind in kinds])}, and the other fields you want'": (
        numbers_of_two_kinds
    ),
    "f'open(..., schema=...) {_how_to_read(kinds)}, and the other fields you want'": files_of_two_kinds,
}


@pytest.mark.parametrize("hint", CASES)
def test_what_a_hint_advises_works(
    hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fails, advised = CASES[hint]()
    with pytest.raises(ps.PenstockError) as refused:
        fails()
    value = ast.parse(hint, mode="eval").body
    start = value.value if isinstance(value, ast.Constant) else hint[2:].split("{", maxsplit=1)[0]
    assert str(refused.value.hint).startswith(str(start))
    advised()


def test_every_hint_has_a_case_or_is_named() -> None:
    named = set(WITHOUT.read_text().splitlines())
    found = hints()
    assert not (found - CASES.keys() - named), "a new hint needs a case that follows it"
    assert not (named - found), "a hint that is gone, or has another text, is not to be named"
    assert not (named & CASES.keys())
    assert CASES.keys() <= found


def test_the_list_of_hints_without_a_case_only_grows_shorter() -> None:
    assert len(WITHOUT.read_text().splitlines()) <= MOST_WITHOUT


MOST_WITHOUT = 136
