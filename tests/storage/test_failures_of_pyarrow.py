"""An error of storage inside pyarrow stays the same error, in any number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

import penstock as ps
from penstock.storage.pyarrow_files import FAILURES, translated


def test_each_thread_gets_the_error_of_the_file() -> None:
    barrier = Barrier(4)

    def fail(_: int) -> None:
        with translated("a.arrow"):
            try:
                with FAILURES.noted("a.arrow"):
                    raise ps.ChangedError("the object was changed", file="a.arrow")
            except ps.ChangedError:
                barrier.wait(30)
                # What pyarrow makes of it: an error with its text only.
                raise OSError("Failed to read: ChangedError: the object was changed") from None

    with ThreadPoolExecutor(4) as pool:
        for made in [pool.submit(fail, number) for number in range(4)]:
            assert isinstance(made.exception(), ps.ChangedError)
    with pytest.raises(ps.FormatError), translated("a.arrow"):
        raise OSError("Invalid: not an Arrow file")
