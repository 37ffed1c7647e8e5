"""Headers are parsed correctly while other threads parse and the garbage collector interrupts them."""

import gc
import io
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.formats.numpy.npy_header import parse_header


@pytest.fixture
def interrupted_parsers() -> Iterator[None]:
    """The garbage collector runs often and calls a function, in which Python changes to another thread."""

    def change(phase: str, info: dict[str, int]) -> None:
        for _ in range(50):
            pass

    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    gc.callbacks.append(change)
    sys.setswitchinterval(1e-6)
    gc.set_threshold(7)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)
    gc.callbacks.remove(change)


@pytest.mark.usefixtures("interrupted_parsers")
def test_headers_are_parsed_while_other_threads_parse() -> None:
    stream = io.BytesIO()
    np.save(stream, np.zeros(3, [("id", "<i8"), ("pixels", "|u1", (4, 25))]))
    header = stream.getvalue()

    def parse(depth: int) -> set[tuple[int, ...]]:
        if depth:
            return parse(depth - 1)
        return {parse_header(lambda at, size: header[at : at + size]).shape for _ in range(300)}

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(parse, (0, 40, 80, 120))) == [{(3,)}] * 4
