"""The contents of null slots do not matter: no verb crashes on them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.columns.null_slots import cleaned, without_garbage

PROGRAM = str(Path(__file__).parents[1] / "read_null_slots.py")


def test_garbage_in_null_slots_goes_through_every_verb(tmp_path):
    words = [sys.executable, "-X", "faulthandler", PROGRAM]
    done = subprocess.run(
        words, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, (done.returncode, last, done.stderr[-2000:])


def _views(type_=None):
    slots = np.zeros((4, 2), "<u8")
    slots[:, 0] = 1 | ord("a") << 32
    slots[1] = (1 << 63) + 5
    valid = pa.py_buffer(bytes([0b1101]))
    return pa.Array.from_buffers(type_ or pa.string_view(), 4, [valid, pa.py_buffer(slots)])


def _slots(array):
    views = np.frombuffer(array.buffers()[1], "<u8").reshape(-1, 2)
    return views[array.offset : array.offset + len(array)]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_null_slots_of_a_slice_are_emptied(start):
    array = _views().slice(start)
    safe = cleaned(array)
    assert safe.equals(array)
    assert not _slots(safe)[np.asarray(safe.is_null())].any()
    assert (safe is array) == (start == 2)


def test_values_of_the_right_type_are_not_copied():
    batch = pa.record_batch(
        [pa.array(["a", None], pa.string_view()), pa.array([1, None])], ["x", "n"]
    )
    assert without_garbage(batch) is batch
