"""Names and values come from untrusted files. None of them may send control sequences to the terminal, whatever a
command prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps

EVIL = "\x1b]0;taken\x07\x1b[31m\x9b2J\r\u202e\x08"
NAMES = [f"a{EVIL}", f"b{EVIL}", "plain"]
COMMANDS = [
    ["info"],
    ["head"],
    ["head", "--columns", "none"],
    ["head", "--columns", f"none{EVIL}"],
    ["stats"],
    ["stats", "--columns", "none"],
    ["schema"],
    ["schema", "--tensorflow"],
    ["layout"],
    ["index"],
    ["verify"],
    ["plan", "--by", "none"],
    ["plan", "--by", "plain"],
    ["diff", "OTHER"],
    ["convert", "OUT.msgpack"],
    ["convert", "OUT.arrow", "--columns", "none"],
    ["convert", "OUT.npz"],
    ["append", "OTHER"],
    ["fields", "list"],
    ["fields", "drop", "none", "--into", "DIR"],
    ["repair", "--into", "DIR"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_prints_control_characters_of_a_name(tmp_path: Path, command: list[str]) -> None:
    suffix = "tfrecord" if command[0] in ("verify", "append", "schema") else "arrow"
    folder = tmp_path / f"in{EVIL}"
    folder.mkdir()
    path, other = folder / f"a{EVIL}.{suffix}", folder / f"b{EVIL}.{suffix}"
    rows = [EVIL, "x" + EVIL]
    ps.write(pa.table({NAMES[0]: rows, NAMES[1]: [[1, 2], []], "plain": ["p" + EVIL] * 2}), path)
    ps.write(
        pa.table({NAMES[0]: rows[::-1], NAMES[1]: [[1], []], "plain": ["q" + EVIL] * 2}), other
    )
    if command[0] == "verify" and suffix == "tfrecord":
        data = bytearray(path.read_bytes())
        data[20] ^= 1
        path.write_bytes(data)
    places = {"OTHER": str(other), "DIR": str(folder / "made")}
    for to in ("msgpack", "arrow", "npz"):
        places[f"OUT.{to}"] = str(folder / f"out{EVIL}.{to}")
    words = [places.get(word, word) for word in command]
    at = 2 if words[0] == "fields" else 1
    if "none" in words[at : at + 1] or words[:2] == ["fields", "list"]:
        at = 2
    words.insert(at, str(path))
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        check=False,
        capture_output=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "2000"},
    )
    for printed in (done.stdout.decode(), done.stderr.decode()):
        assert "Traceback" not in printed
        steering = sorted({c for c in printed if not c.isprintable() and c != "\n"})
        assert not steering, (steering, printed)
