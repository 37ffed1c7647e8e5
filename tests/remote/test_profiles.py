"""Who a reader of S3 is: options, the environment, a profile of AWS's files, or the machine, in this order."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs

import pytest

import penstock as ps
from remote.servers.answering import answering
from remote.servers.http1 import Asked, Reply, header
from remote.servers.metadata import metadata
from remote.servers.s3 import REGION
from remote.servers.seaweed import KEY_ID, SECRET, Seaweed

RIGHT = f"aws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
WRONG = "aws_access_key_id = wrong-id\naws_secret_access_key = wrong-secret-1\n"
IDS = {"id": [1, 2, 3]}


@pytest.fixture
def url(tmp_path: Path, seaweed: Seaweed, prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An object that only `KEY_ID` may read. The environment says where the store is, but not who reads."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweed.endpoint)
    monkeypatch.setenv("AWS_REGION", REGION)
    # Not the address of real machines.
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    ps.write(IDS, tmp_path / "x.tfrecord", index=False)
    seaweed.client.put(f"{prefix}/x.tfrecord", (tmp_path / "x.tfrecord").read_bytes())
    (tmp_path / ".aws").mkdir()
    return f"s3://{prefix}/x.tfrecord"


def ids(url: str, **options: object) -> list[int]:
    return ps.open(url, storage_options=options).to_table()["id"].to_pylist()


def keys(home: Path, text: str) -> None:
    (home / ".aws" / "credentials").write_text(text)


def config(home: Path, text: str) -> None:
    (home / ".aws" / "config").write_text(text)


def test_the_default_profile_is_used_without_any_name(url: str, tmp_path: Path) -> None:
    keys(tmp_path, f"[default]\n{RIGHT}[other]\n{WRONG}")
    assert ids(url) == [1, 2, 3]
    keys(tmp_path, "")
    config(tmp_path, f"[default]\n{RIGHT}")
    assert ids(url) == [1, 2, 3]


@pytest.mark.parametrize("variable", ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"])
def test_the_environment_names_a_profile(
    variable: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys(tmp_path, f"[default]\n{WRONG}[dev]\n{RIGHT}")
    with pytest.raises(ps.StorageError, match="credentials"):
        ids(url)
    monkeypatch.setenv(variable, "dev")
    assert ids(url) == [1, 2, 3]


def test_the_files_may_be_elsewhere(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "k").write_text(f"[dev]\n{WRONG}")
    (tmp_path / "c").write_text(f"[profile dev]\n{RIGHT}")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "c"))
    assert ids(url, aws_profile="dev") == [1, 2, 3]
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "k"))
    with pytest.raises(ps.StorageError):
        ids(url, aws_profile="dev")  # the file of keys comes first


def test_options_beat_the_environment_which_beats_a_profile(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET}
    keys(tmp_path, f"[default]\n{WRONG}[dev]\n{RIGHT}[bad]\n{WRONG}")
    monkeypatch.setenv("AWS_PROFILE", "bad")
    for name, value in right.items():
        monkeypatch.setenv(name.upper(), value)
    assert ids(url) == [1, 2, 3]
    for name in right:
        monkeypatch.setenv(name.upper(), "wrong-in-environment")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "wrong-token")
    with pytest.raises(ps.StorageError):
        ids(url)
    assert ids(url, aws_profile="dev") == [1, 2, 3]
    assert ids(url, **right) == [1, 2, 3]
    assert ids(url, access_key_id=KEY_ID, secret_access_key=SECRET) == [1, 2, 3]
    assert ids(url, aws_profile="bad", **right) == [1, 2, 3]


def test_a_profile_beats_the_machine(url: str, tmp_path: Path) -> None:
    with metadata() as machine:
        options = machine.aws_options()
        assert ids(url, **options) == [1, 2, 3]
        assert machine.given
        keys(tmp_path, f"[default]\n{WRONG}")
        with pytest.raises(ps.StorageError):
            ids(url, **options)
        config(tmp_path, "[default]\nregion = eu-west-1\n")
        keys(tmp_path, "")
        assert ids(url, **options) == [1, 2, 3]  # a profile without keys


@pytest.mark.parametrize("place", ["itself", "services"])
def test_a_profile_gives_region_and_endpoint(
    place: str, url: str, tmp_path: Path, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys(tmp_path, f"[dev]\n{RIGHT}")
    line = f"endpoint_url = {seaweed.endpoint}"
    if place == "services":
        line = f"services = here\n[services here]\ns3 =\n  {line}\n  x = y"
    config(tmp_path, f"[profile dev]\nregion = {REGION}\n{line}\n")
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert ids(url, aws_profile="dev") == [1, 2, 3]
    with answering(lambda asked: Reply(404).with_body(b"")) as empty:
        monkeypatch.setenv("AWS_ENDPOINT_URL", empty)
        with pytest.raises(FileNotFoundError):
            ids(url, aws_profile="dev")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", empty)
        assert ids(url, aws_profile="dev", aws_endpoint_url=seaweed.endpoint) == [1, 2, 3]


def test_a_profile_that_is_not_there_is_named(url: str, tmp_path: Path) -> None:
    keys(tmp_path, f"[default]\n{RIGHT}")
    with pytest.raises(ps.StorageError, match="no AWS profile 'dve'") as missing:
        ids(url, aws_profile="dve")
    assert str(tmp_path / ".aws" / "config") in str(missing.value)


def test_a_file_that_is_no_profile_is_an_error_without_its_lines(url: str, tmp_path: Path) -> None:
    keys(tmp_path, f"{SECRET}\n[default]\n{RIGHT}")
    with pytest.raises(ps.StorageError, match="AWS profiles") as bad:
        ids(url)
    assert SECRET not in str(bad.value) and bad.value.__cause__ is None


def test_a_pickle_has_the_name_of_the_profile_only(url: str, tmp_path: Path) -> None:
    keys(tmp_path, f"[dev]\n{RIGHT}")
    ds = ps.open(url, storage_options={"aws_profile": "dev"})
    body = pickle.dumps(ds)
    assert b"dev" in body and SECRET.encode() not in body and KEY_ID.encode() not in body
    assert pickle.loads(body).to_table() == ds.to_table()
    assert SECRET not in repr(ds.files.storage) + str(vars(ds.files.storage))


# -- by botocore ----------------------------------------------------------------------------------


def program(home: Path, *, seconds: float | None = None, key: str = KEY_ID) -> str:
    """A program that prints keys, and notes each call in the file "asked"."""
    facts = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": SECRET}
    code = "import json,sys,datetime\n"
    code += f"n = len(open({str(home / 'asked')!r}, 'a+').write('x') and open({str(home / 'asked')!r}).read()) + 1\n"
    code += f"facts = {facts!r}\n"
    if seconds is not None:
        code += (
            f"end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds={seconds})\n"
        )
        code += "facts['Expiration'] = end.isoformat(); facts['SessionToken'] = 'unused'\n"
        code += "facts['AccessKeyId'] = f'key{n}'\n"
    code += "print(json.dumps(facts))\n"
    (home / "program.py").write_text(code)
    return f"credential_process = {sys.executable} {home / 'program.py'}"


def test_a_program_of_a_profile_gives_keys(url: str, tmp_path: Path) -> None:
    config(tmp_path, f"[profile dev]\n{program(tmp_path)}\n")
    assert ids(url, aws_profile="dev") == [1, 2, 3]
    keys(tmp_path, f"[dev]\n{WRONG}")
    with pytest.raises(ps.StorageError):  # keys come before programs
        ids(url, aws_profile="dev")


def test_a_program_that_fails_is_an_error_without_its_output(url: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(f"print({SECRET!r})")
    config(
        tmp_path, f"[profile dev]\ncredential_process = {sys.executable} {tmp_path / 'bad.py'}\n"
    )
    with pytest.raises(ps.StorageError, match="'dev' gives no credentials") as bad:
        ids(url, aws_profile="dev")
    assert SECRET not in str(bad.value) and bad.value.__cause__ is None


def test_a_role_of_a_profile_is_taken(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, list[str]]] = []

    def security(request: Asked) -> Reply:
        asked.append(parse_qs(request.body.decode()))
        end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        text = (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
            f"<Credentials><AccessKeyId>{KEY_ID}</AccessKeyId><SecretAccessKey>{SECRET}"
            f"</SecretAccessKey><SessionToken></SessionToken><Expiration>{end}</Expiration>"
            "</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )
        return Reply(200, [("Content-Type", "text/xml")]).with_body(text.encode())

    keys(tmp_path, f"[base]\n{WRONG}")
    role = "role_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = base\n"
    config(tmp_path, f"[profile dev]\n{role}")
    with answering(security) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoint)
        assert ids(url, aws_profile="dev") == [1, 2, 3]
    assert asked[0]["RoleArn"] == ["arn:aws:iam::123456789012:role/reader"]


def test_single_sign_on_of_a_profile_is_used(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def portal(request: Asked) -> Reply:
        if header(request.headers, "x-amz-sso_bearer_token") != "token-of-the-login":
            return Reply(401).with_body(b"{}")
        end = int(time.time() + 3600) * 1000
        given = {"accessKeyId": KEY_ID, "secretAccessKey": SECRET, "sessionToken": ""}
        text = json.dumps({"roleCredentials": {**given, "expiration": end}})
        return Reply(200, [("Content-Type", "application/json")]).with_body(text.encode())

    start = "https://start.example/start"
    lines = f"sso_start_url = {start}\nsso_region = {REGION}\nsso_account_id = 123456789012\n"
    config(tmp_path, f"[profile dev]\n{lines}sso_role_name = reader\n")
    with answering(portal) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", endpoint)
        with pytest.raises(ps.StorageError, match="gives no credentials") as logged_out:
            ids(url, aws_profile="dev")
        assert "aws sso login" in str(logged_out.value)
        cache = tmp_path / "cache"
        cache.mkdir()
        # botocore takes the home folder when it is imported.
        monkeypatch.setattr("botocore.credentials.SSOProvider._SSO_TOKEN_CACHE_DIR", str(cache))
        end = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
        token = {"accessToken": "token-of-the-login", "expiresAt": end}
        (cache / f"{hashlib.sha1(start.encode()).hexdigest()}.json").write_text(json.dumps(token))
        assert ids(url, aws_profile="dev") == [1, 2, 3]


def test_without_botocore_the_error_says_what_to_install(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config(tmp_path, f"[profile dev]\n{program(tmp_path)}\n")
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(ps.UnsupportedError, match="needs botocore") as missing:
        ids(url, aws_profile="dev")
    assert missing.value.hint == "pip install 'penstock[aws]'"
    keys(tmp_path, f"[plain]\n{RIGHT}")
    assert ids(url, aws_profile="plain") == [1, 2, 3]


# -- credentials that expire ----------------------------------------------------------------------

LIFE = 0.8
"""Seconds for which the keys of the tests are good."""


@dataclass
class Strict:
    """A store that answers only those whose key is not too old. Keys are told apart by their names, and are as old as the
    store's first sight of them."""

    body: bytes
    seen: dict[str, float] = field(default_factory=dict)
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: Asked) -> Reply:
        found = re.search(r"Credential=([^/]+)/", header(asked.headers, "authorization") or "")
        assert found
        with self.lock:
            time.sleep(0.04)
            born = self.seen.setdefault(found[1], time.monotonic())
            if time.monotonic() - born > 2 * LIFE:
                self.refused += 1
                text = b"<Error><Code>ExpiredToken</Code></Error>"
                return Reply(403).with_body(text)
        if "list-type" in asked.query:
            return Reply(200).with_body(b"<ListBucketResult></ListBucketResult>")
        if asked.range is None or ".penstock" in asked.path:
            return Reply(404).with_body(b"")
        first, last = asked.range
        end = len(self.body) if last is None else min(last + 1, len(self.body))
        where = ("Content-Range", f"bytes {first}-{end - 1}/{len(self.body)}")
        dated = ("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")
        return Reply(206, [("ETag", '"one"'), where, dated]).with_body(self.body[first:end])


@pytest.fixture
def strict(tmp_path: Path) -> Strict:
    data = {"id": range(100), "blob": [os.urandom(4_000) for _ in range(100)]}
    ps.write(data, tmp_path / "large.tfrecord", index=False)
    return Strict((tmp_path / "large.tfrecord").read_bytes())


def scanned(endpoint: str, **options: str) -> None:
    names = [f"s3://bucket/{n}.tfrecord" for n in range(30)]
    where = {"aws_endpoint_url": endpoint, "aws_allow_http": "true", "aws_region": REGION}
    ds = ps.open(names, storage_options=where | options, index="never", overlays=False)
    assert ds.to_table(columns=["id"])["id"].to_pylist() == list(range(100)) * 30


def test_credentials_of_the_machine_are_renewed_during_a_long_scan(
    url: str, strict: Strict
) -> None:
    with metadata() as machine, answering(strict.answer) as endpoint:
        machine.seconds = LIFE
        begun = time.monotonic()

        timer = _rotate(machine)
        try:
            scanned(endpoint, **machine.aws_options())
        finally:
            timer.set()
        assert time.monotonic() - begun > 2 * LIFE
    assert len(strict.seen) > 2 and not strict.refused


def _rotate(machine: object) -> threading.Event:
    """Give the machine a key of another name, again and again."""
    done = threading.Event()

    def run() -> None:
        number = 0
        while not done.wait(LIFE / 4):
            number += 1
            machine.key_id = f"key{number}"  # type: ignore[attr-defined]

    threading.Thread(target=run).start()
    return done


def test_credentials_of_a_program_are_renewed_during_a_long_scan(
    url: str, strict: Strict, tmp_path: Path
) -> None:
    config(tmp_path, f"[profile dev]\n{program(tmp_path, seconds=LIFE)}\n")
    with answering(strict.answer) as endpoint:
        scanned(endpoint, aws_profile="dev")
    assert len(strict.seen) > 2 and not strict.refused
