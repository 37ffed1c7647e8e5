"""Files of .beton that are wrong, cut or hostile."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from test_beton import PAGE, mixed, opened, ps_jpegs, put, read, two_fields, written

import penstock as ps
from penstock.columns.types import fixed_tensors
from penstock.errors import LimitError
from reading import run_python

ROW = 24 + 2 * 1041
"""The first row of a file of two fields."""


WRONG: dict[str, tuple[Any, str]] = {
    "another version": (lambda d: put(d, 0, "H", 1), "version"),
    "no fields": (lambda d: put(d, 2, "H", 0), "no fields"),
    "more fields than bytes": (lambda d: put(d, 2, "H", 9000), "truncated"),
    "a small page": (lambda d: put(d, 4, "I", 1 << 20), "power of two"),
    "an odd page": (lambda d: put(d, 4, "I", 3 << 20), "power of two"),
    "more records than fit": (lambda d: put(d, 8, "Q", 1 << 40), "do not fit"),
    "the most records": (lambda d: put(d, 8, "Q", (1 << 64) - 1), "do not fit"),
    "one record less": (lambda d: put(d, 8, "Q", 1), "length of the allocation table"),
    "one record more": (lambda d: put(d, 8, "Q", 3), "length of the allocation table"),
    "no table": (lambda d: put(d, 16, "Q", 0), "never finished"),
    "a table beyond the end": (lambda d: put(d, 16, "Q", 1 << 63), "before its allocation"),
    "a table in the header": (lambda d: put(d, 16, "Q", 30), "do not fit"),
    "an unknown type": (lambda d: put(d, 24, "B", 77), "no type of field"),
    "no name": (lambda d: put(d, 25, "B", 0), "no name"),
    "a name in Latin-1": (lambda d: put(d, 25, "B", 0xE9), "not ASCII"),
    "the same name twice": (lambda d: put(d, 25, "5s", b"n\0\0\0\0"), "two fields"),
    "a value before the pages": (lambda d: put(d, ROW, "Q", 100), "inside one page"),
    "a value behind the pages": (lambda d: put(d, ROW, "Q", 2 * PAGE), "inside one page"),
    "a value on two pages": (lambda d: put(d, ROW, "QQ", 2 * PAGE - 2, 3), "inside one page"),
    "a value that overflows": (lambda d: put(d, ROW, "QQ", (1 << 64) - 1, 3), "inside one page"),
    "a huge value": (lambda d: put(d, ROW, "QQ", PAGE, (1 << 64) - 1), "inside one page"),
    "bytes behind the table": (lambda d: d + bytes(24), "length of the allocation table"),
    "an entry less": (lambda d: d[:-24], "length of the allocation table"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(WRONG))
def test_a_wrong_file_is_an_error_that_says_where(case: str) -> None:
    change, message = WRONG[case]
    with pytest.raises(ps.FormatError, match=message) as caught:
        read(change(two_fields()))
    assert caught.value.file == "a.beton"
    assert caught.value.byte is not None


IMAGES: dict[str, tuple[Any, str]] = {
    "an unknown mode": (lambda d: put(d, ROW, "B", 2), "neither a JPEG"),
    "pixels without a side": (lambda d: put(d, ROW, "BHH", 1, 0, 5), "neither a JPEG"),
    "pixels beyond the page": (lambda d: put(d, ROW, "BHH", 1, 65535, 65535), "inside one page"),
    "a JPEG that nobody allocated": (lambda d: put(d, ROW + 5, "Q", PAGE + 1), "does not have"),
    "an entry of another record": (lambda d: put(d, 2 * PAGE, "Q", 1), "does not have"),
    "an entry of no bytes": (lambda d: put(d, 2 * PAGE + 16, "Q", 0), "does not have"),
    "a JPEG longer than its page": (lambda d: put(d, 2 * PAGE + 16, "Q", PAGE + 1), "inside one"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(IMAGES))
def test_a_wrong_image_is_an_error_that_names_it(case: str) -> None:
    change, message = IMAGES[case]
    data = written({"image": ps_jpegs(2), "n": [1, 2]})
    with pytest.raises(ps.FormatError, match=message) as caught:
        read(change(data))
    assert (caught.value.record, caught.value.field) == (0, "image")
    assert read(change(data), columns=["n"]).column("n").to_pylist() == [1, 2]


def test_two_values_in_one_place_are_an_error() -> None:
    data = written({"image": ps_jpegs(3)})
    data = put(
        data, 2 * PAGE, "QQQ", 1, PAGE, 50
    )  # the first entry is no longer the first record's
    data = put(data, 2 * PAGE + 24, "QQQ", 0, PAGE, 60)
    with pytest.raises(ps.FormatError, match="two values at the same place"):
        read(data)


TENSORS: dict[str, Any] = {
    "no dimensions": lambda d: put(d, 24 + 17, "Q", 0),
    "a huge dimension": lambda d: put(d, 24 + 17, "Q", 1 << 60),
    "a zero that hides a huge one": lambda d: put(d, 24 + 17, "QQQ", 0, 1 << 62, 1),
    "a long description": lambda d: put(d, 24 + 17 + 256, "Q", 1 << 60),
    "no JSON": lambda d: put(d, 24 + 17 + 264, "4s", b"{{{{"),
    "deep JSON": lambda d: put(put(d, 24 + 17 + 256, "Q", 700), 24 + 281, "700s", b"[" * 700),
}


@pytest.mark.parametrize("case", list(TENSORS))
def test_a_wrong_tensor_is_an_error_that_names_it(case: str) -> None:
    data = TENSORS[case](written({"v": fixed_tensors(np.zeros((2, 3), "<f4"))}))
    with pytest.raises(ps.FormatError) as caught:
        read(data)
    assert caught.value.field == "v"


def test_limits_come_before_memory() -> None:
    data = written({"data": [bytes(3000), bytes(10)]})
    with pytest.raises(LimitError, match="record_bytes") as caught:
        read(data, limits={"record_bytes": 1000})
    assert (caught.value.record, caught.value.field) == (0, "data")
    with pytest.raises(LimitError, match="batch_bytes"):
        opened(data, limits={"batch_bytes": 3001}).take([0, 1])


def test_a_small_file_cannot_ask_for_much_memory() -> None:
    """Ten thousand records share one value of two MiB: 20 GB, if they were read together."""
    code = """
import numpy as np, penstock as ps, struct, sys
path = sys.argv[1]
n = 10_000
ps.write({"b": [b"x"] * n}, path, page_bytes=1 << 21, overwrite=True)
with open(path, "r+b") as file:
    file.seek(24 + 1041)
    file.write(struct.pack("<QQ", 1 << 21, 1 << 21) * n)
found = 0
for batch in ps.open(path).scan(threads=1):
    found += batch.num_rows
    if found > 20:
        break
try:
    ps.open(path).take(list(range(n)))
except ps.LimitError as error:
    print(error)
"""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        assert "batch_bytes" in run_python(code, f"{folder}/a.beton", megabytes=400)


def test_truncation_at_every_byte_is_an_error() -> None:
    data = written({"data": [b"abc", b"d"], "n": [1, 2]})
    cuts = [*range(24 + 2 * 1041 + 60), *range(len(data) - 60, len(data)), PAGE, PAGE + 3]
    for cut in cuts:
        with pytest.raises(ps.FormatError):
            read(data[:cut], format="beton")


def test_flipped_bits_end_in_data_or_an_error() -> None:
    data = written(mixed(6), image_mode="proportion")
    interesting = [*range(24), *range(24 + 5 * 1041, 24 + 5 * 1041 + 6 * 56)]
    interesting += [24 + f * 1041 + n for f in range(5) for n in (0, 1, 5, 17, 18, 273, 281, 290)]
    interesting += range(len(data) - 6 * 4 * 24, len(data), 5)
    rng = random.Random(3)
    for _ in range(1200):
        at = rng.choice(interesting)
        try:
            read(put(data, at, "B", data[at] ^ (1 << rng.randrange(8))), format="beton")
        except ps.PenstockError as error:
            assert str(error).startswith("a.beton"), error
