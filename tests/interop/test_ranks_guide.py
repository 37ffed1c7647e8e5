"""The validation of docs/guide/ranks.md, on several processes of torch.distributed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from reading import ROOT

pytest.importorskip("torch")

PAGE = (ROOT / "docs" / "guide" / "ranks.md").read_text("utf-8")
FOUND = re.search(r"^## Validation\n.*?^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("world_size", "steps"), [(1, 7), pytest.param(2, 4, marks=pytest.mark.stress), (3, 3)]
)
def test_every_record_is_validated_once(world_size: int, steps: int, tmp_path: Path) -> None:
    assert FOUND is not None
    ps.write({"id": np.arange(100)}, tmp_path / "ids.tfrecord")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    running = [
        subprocess.Popen(
            [sys.executable, "-c", FOUND[1]],
            cwd=tmp_path,
            env={
                **os.environ,
                "CUDA_VISIBLE_DEVICES": "",
                "OMP_NUM_THREADS": "1",
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
            },
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(world_size)
    ]
    try:
        for one in running:
            out, err = one.communicate(timeout=300)
            assert out == f"right 50 of 100 in {steps} steps\n", err[-3000:]
    finally:
        for one in running:
            one.kill()
            one.communicate()
