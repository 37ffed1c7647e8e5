"""If a file is truncated after it was opened and before it is indexed, that is reported as a fault of the file, for
every framing."""

import os

import pytest

import penstock as ps
from penstock import _core

FORMATS = {"tfrecord": "a.tfrecord", "recordio": "a.rec", "msgpack": "a.msgpack", "tar": "a.tar"}


def _made(folder, name):
    path = str(folder / name)
    if name.endswith(".rec"):
        ps.write([bytes([i]) * (1 << 14) for i in range(200)], path, index=False)
    else:
        ps.write({"x": [bytes([i]) * (1 << 14) for i in range(200)]}, path, index=False)
    return path


@pytest.mark.parametrize("name", sorted(FORMATS))
@pytest.mark.parametrize("share", [0, 0.31, 0.999])
@pytest.mark.parametrize("goal", [None, 1 << 20])
def test_a_file_truncated_while_it_is_indexed(tmp_path, name, share, goal):
    path = _made(tmp_path, FORMATS[name])
    file = _core.File(path)
    os.truncate(path, int(file.size * share) + 3)
    options = () if goal is None else (goal,)
    starts, checksums, fault = _core.index_file(_framing(path), file, 1 << 30, 0, *options)
    assert len(starts) == len(checksums) + 1
    assert fault is None or fault.kind == "truncated"
    # A tar has blocks of zeros at its end. A reader that needs only some bytes may stop before
    # them.
    assert fault is not None or goal is not None


def _framing(path):
    return {"tfrecord": "tfrecord", "rec": "recordio", "msgpack": "msgpack", "tar": "webdataset"}[
        path.rpartition(".")[2]
    ]
