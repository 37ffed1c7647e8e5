"""Planted secrets are searched for in all that penstock shows, raises, pickles and writes."""

from __future__ import annotations

import io
import logging
import os
import pickle
import shutil
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from remote.servers.nginx import SIGNATURE, Nginx
from remote.servers.seaweed import SECRET, Seaweed

WRONG = "wrong-secret-2Kq"
TOKEN = "session-token-8Zw"
PLANTED = (SECRET, SIGNATURE, WRONG, TOKEN)
DATA = {"id": list(range(300)), "blob": [os.urandom(3000) for _ in range(300)]}


class Seen:
    """What was shown, raised, pickled and written."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def value(self, value: Any) -> None:
        """Look at an object: how it is shown, what it holds, and its pickle."""
        self.texts += [repr(value), str(value)]
        for kind in ("_repr_html_", "to_json"):
            if hasattr(value, kind):
                self.texts.append(str(getattr(value, kind)()))
        try:
            self.texts.append(pickle.dumps(value).decode("latin-1"))
        except Exception as error:
            self.error(error)

    def error(self, error: BaseException) -> None:
        """Look at an error with its causes, its facts and its pickle."""
        self.texts += [
            "".join(traceback.format_exception(error, limit=0)),
            repr(error),
            str(vars(error)),
        ]
        self.texts.append(pickle.dumps(error).decode("latin-1"))

    def call(self, call: Callable[[], Any]) -> None:
        """Look at what a call returns, raises, prints and warns of."""
        out = io.StringIO()
        with (
            warnings.catch_warnings(record=True) as told,
            redirect_stdout(out),
            redirect_stderr(out),
        ):
            warnings.simplefilter("always")
            try:
                self.value(call())
            except Exception as error:
                self.error(error)
        self.texts += [out.getvalue(), *(str(one.message) for one in told)]

    def files(self, folder: Path) -> None:
        """Look at names and bytes of all files."""
        for path in folder.rglob("*"):
            self.texts.append(str(path))
            if path.is_file():
                self.texts.append(path.read_bytes().decode("latin-1"))

    def found(self) -> list[str]:
        """Where a secret is, in short."""
        return [
            f"{secret}: …{text[max(0, text.index(secret) - 80) : text.index(secret) + 20]}…"
            for text in self.texts
            for secret in PLANTED
            if secret in text
        ]


@pytest.fixture
def seen(caplog: pytest.LogCaptureFixture) -> Iterator[Seen]:
    caplog.set_level(logging.DEBUG)
    found = Seen()
    yield found
    found.texts += [record.getMessage() for record in caplog.records]
    assert not found.found()


def uses(name: str, folder: Path, options: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """What one can do with a source."""
    how: dict[str, Any] = {"storage_options": options}
    cache = ps.Cache(folder / "cache", 1 << 30) if hasattr(ps, "Cache") else None
    where: dict[str, Any] = {"storage_options": options, "index": str(folder / "indexes")}
    (folder / "indexes").mkdir(exist_ok=True)

    def state() -> Any:
        loader = ps.Loader(ps.open(name, **how), batch_size=8, order=ps.Shuffled(seed=1))
        steps = iter(loader)
        next(steps)
        return loader.state_dict(), loader.stats(), loader

    def cached() -> Any:
        ds = ps.open(name, cache=cache, **how)
        return ds.to_table().num_rows, ds

    return {
        "open": lambda: ps.open(name, **how),
        "vars": lambda: vars(ps.open(name, **how).files.storage),
        "shards": lambda: ps.open(name, **how).shards,
        "fingerprint": lambda: ps.open(name, **how).fingerprint,
        "head": lambda: ps.open(name, **how).head(2).num_rows,
        "take": lambda: ps.open(name, **where).take([200, 3]).num_rows,
        "state": state,
        "cached": cached,
        "verify": lambda: ps.verify(name, **how),
        "layout": lambda: ps.layout(name, **how),
        "stats": lambda: ps.stats(name, **how),
        "index": lambda: ps.index(name, **how),
        "convert": lambda: ps.convert(name, folder / "x.parquet", overwrite=True, **how),
        "convert there": lambda: ps.convert(
            name, f"{name.partition('?')[0]}-new.parquet", target_storage_options=options, **how
        ),
        "repair": lambda: ps.repair(name, into=folder / "y.tfrecord", **how),
        "manifest": lambda: ps.manifest(name, folder / "x.manifest", overwrite=True, **how),
        "fields": lambda: ps.add_fields(name, {"score": [0.5] * 300}, **how),
        "append": lambda: ps.append({"id": [1], "blob": [b""]}, name, **how),
        "missing": lambda: ps.open(name.replace("x.tfrecord", "missing.tfrecord"), **how),
        "pattern": lambda: ps.open(name.replace("x.tfrecord", "*.none"), **how),
        "mmap": lambda: ps.open(name, mmap=True, **how),
        "format": lambda: ps.open(name, format="parquet", **how),
        "field": lambda: ps.open(name, columns=["none"], **how),
        "unknown option": lambda: ps.open(name, storage_options={**options, "no_such_key": WRONG}),
    }


def test_keys_in_options_are_nowhere(
    seen: Seen, seaweed: Seaweed, prefix: str, tmp_path: Path
) -> None:
    name = f"s3://{prefix}/x.tfrecord"
    options = seaweed.options()
    ps.write(DATA, name, storage_options=options)
    for call in uses(name, tmp_path, options).values():
        seen.call(call)
    for wrong in (
        {"aws_secret_access_key": WRONG},
        {"aws_session_token": TOKEN},
        {"aws_endpoint_url": "http://127.0.0.1:9", "aws_secret_access_key": WRONG},
    ):
        seen.call(lambda wrong=wrong: ps.open(name, storage_options={**options, **wrong}))
    seen.files(tmp_path)
    seen.files(Path(os.environ["XDG_CACHE_HOME"]))
    bucket, _, folder = prefix.partition("/")
    for key in seaweed.client.keys(bucket, folder):
        seen.texts.append(seaweed.client.get(f"{bucket}/{key}").decode("latin-1"))


def test_keys_in_the_environment_are_nowhere(
    seen: Seen, seaweed: Seaweed, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)
    name = f"s3://{prefix}/x.tfrecord"
    ps.write(DATA, name)
    for call in uses(name, tmp_path, {}).values():
        seen.call(call)
    seen.files(tmp_path)
    seen.files(Path(os.environ["XDG_CACHE_HOME"]))


def test_a_signed_address_is_nowhere(seen: Seen, nginx: Nginx, tmp_path: Path) -> None:
    ps.write(DATA, tmp_path / "x.tfrecord", index=False)
    shutil.copy(tmp_path / "x.tfrecord", nginx.files)
    options = {"allow_http": True}
    name = f"{nginx.endpoint}/signed/x.tfrecord?sig={SIGNATURE}"
    calls = uses(name, tmp_path, options)
    del calls["vars"]  # it knows which address to read
    for call in calls.values():
        seen.call(call)
    with pytest.raises(ps.UnsupportedError, match="signed"):
        pickle.dumps(ps.open(name, storage_options=options))
    allowed = ps.open(name, storage_options={**options, "pickle_secrets": True})
    assert len(pickle.loads(pickle.dumps(allowed))) == 300
    seen.call(lambda: ps.open(name.replace(SIGNATURE, WRONG), storage_options=options))
    seen.call(lambda: ps.open(f"{nginx.endpoint.replace('//', f'//user:{TOKEN}@')}/none.tfrecord"))
    seen.files(tmp_path)
    seen.files(Path(os.environ["XDG_CACHE_HOME"]))


@pytest.mark.parametrize("words", [["info"]])
def test_commands_show_no_signature(
    words: list[str], seen: Seen, nginx: Nginx, tmp_path: Path
) -> None:
    ps.write(DATA, tmp_path / "x.tfrecord", index=False)
    shutil.copy(tmp_path / "x.tfrecord", nginx.files)
    for sign in (SIGNATURE, WRONG):
        name = f"{nginx.endpoint}/signed/x.tfrecord?sig={sign}"
        command = [sys.executable, "-m", "penstock", *words, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seen.texts += [done.stdout, done.stderr]
        assert done.stdout or done.stderr
