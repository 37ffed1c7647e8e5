"""npy files that are refused: headers that are not literals, object arrays, false claims, and truncated or changed
files."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from npy_files import ARRAYS, GOLDEN, npy, opened, table, with_header

import penstock as ps
from reading import run_python

GOOD = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }"
BAD_HEADERS = {
    "a call": GOOD.replace("'<i2'", "__import__('os').system('touch canary')"),
    "no key": "{'descr': '<i2', 'shape': (2,)}",
    "a key more": GOOD.replace("}", "'x': 1}"),
    "a key twice": GOOD.replace("}", "'descr': '<i4'}"),
    "a list as shape": GOOD.replace("(2,)", "[2]"),
    "a negative size": GOOD.replace("(2,)", "(-2,)"),
    "a size that is True": GOOD.replace("(2,)", "(True,)"),
    "a product beyond 64 bits": GOOD.replace("(2,)", "(4294967296, 4294967296)"),
    "twenty digits": GOOD.replace("(2,)", "(99999999999999999999,)"),
    "too many axes": GOOD.replace("(2,)", "(1,)".replace("1", "1, " * 64 + "1")),
    "order as a number": GOOD.replace("False", "0"),
    "an unknown kind": GOOD.replace("<i2", "<q2"),
    "an unknown size": GOOD.replace("<i2", "<i3"),
    "a time divided by nothing": GOOD.replace("<i2", "<M8[s/0]"),
    "half of a surrogate pair": GOOD.replace("'<i2'", "[('a\\ud83d', '<i2')]"),
    "a sum": GOOD.replace("(2,)", "(1+1j,)"),
    "a size too wide": GOOD.replace("<i2", "|S9999999999"),
    "something behind": GOOD + " 1",
    "not closed": GOOD[:-1],
    "a string not closed": GOOD[:12],
    "nesting": GOOD.replace("(2,)", "(" * 5000),
    "nested dtypes": GOOD.replace("'<i2'", "[('a', " * 60 + "'<i2'" + ")]" * 60),
    "fields of one name": GOOD.replace("'<i2'", "[('a', '<i2'), ('a', '<i2')]"),
    "a field without name": GOOD.replace("'<i2'", "[(1, '<i2')]"),
    "a sub-array beyond memory": GOOD.replace("'<i2'", "[('a', '<i2', (4294967296, 4096))]"),
    "an escape of no character": GOOD.replace("'<i2'", "'\\ud800'"),
    "nothing": "",
}


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_a_header_that_is_not_a_literal_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises((ps.FormatError, ps.UnsupportedError)) as caught:
        opened(with_header(BAD_HEADERS[name], b"\0" * 64))
    assert caught.value.file == "a.npy"
    assert not list(tmp_path.iterdir())


def test_no_header_takes_much_time_or_memory() -> None:
    """A megabyte of the worst nesting, the most fields, or the longest numbers is read within a second and 300 MB."""
    code = """
import sys, time
import penstock as ps
from penstock.formats.numpy.npy_header import parse_header, MAGIC
import struct
texts = ["(" * (1 << 20), "{'a':" * 200000, "[" * 10 + "(1," * 300000, "'" * (1 << 20), "1" * (1 << 20),
    "{'descr': [" + ",".join(f"('f{n}','<i2')" for n in range(50000)) + "], 'fortran_order': False, 'shape': (0,)}",
    "'" + "\\\\x41" * 250000 + "'", " " * (1 << 20), "1," * (1 << 19), "()" * (1 << 19), "1<" * (1 << 19) + "1",
    "'\\\\q'," * (1 << 18)]
for text in texts:
    data = MAGIC + b"\\2\\0" + struct.pack("<I", len(text)) + text.encode()
    start = time.monotonic()
    try:
        parse_header(lambda at, size: data[at:at + size])
    except ps.PenstockError:
        pass
    assert time.monotonic() - start < 5, text[:20]
"""
    run_python(code, megabytes=300)


def test_objects_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Touch:
        def __reduce__(self) -> Any:
            return Path.touch, (canary,)

    path = tmp_path / "o.npy"
    np.save(path, np.array([Touch()], object), allow_pickle=True)
    assert pickle.PROTO in path.read_bytes()
    with pytest.raises(ps.UnsupportedError, match="pickle"):
        ps.open(str(path), index="never")
    assert not canary.exists()


def test_a_file_shorter_than_its_shape_says_is_cut() -> None:
    data = npy(np.arange(100))
    with pytest.raises(ps.TruncatedError, match=r"a\.npy"):
        opened(data[:-1])
    with pytest.raises(ps.FormatError, match="bytes follow the array"):
        opened(data + b"x")


def test_records_of_zero_bytes_are_bounded() -> None:
    huge = "{'descr': '|S0', 'fortran_order': False, 'shape': (9223372036854775,), }"
    with pytest.raises(ps.LimitError, match="no bytes"):
        opened(with_header(huge))


def test_a_record_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ps.LimitError, match="record_bytes"):
        opened(npy(np.zeros((2, 1000))), limits={"record_bytes": 7999})


def test_flipped_and_cut_files_end_in_data_or_an_error() -> None:
    seeds = [
        npy(np.arange(6).reshape(2, 3)),
        (GOLDEN / "struct.npy").read_bytes(),
        npy(ARRAYS["text"]),
    ]
    rng = random.Random(7)
    for data in seeds:
        variants = [data[:cut] for cut in range(len(data))]
        for _ in range(1500):
            broken = bytearray(data)
            for _ in range(rng.choice((1, 1, 2, 5))):
                broken[rng.randrange(len(data))] = rng.randrange(256)
            variants.append(bytes(broken))
        for variant in variants:
            try:
                table(variant).validate(full=True)
            except ps.PenstockError as error:
                assert error.file == "a.npy"
