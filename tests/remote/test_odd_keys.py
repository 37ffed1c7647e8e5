"""Keys of any spelling are read as they are, or refused by name, and never hide others."""

from __future__ import annotations

import itertools
import warnings
from urllib.parse import parse_qs

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from remote.servers.answering import answering
from remote.servers.http1 import Asked, Reply
from remote.servers.seaweed import Seaweed

ODD = [
    "a b.tfrecord",
    " a.tfrecord",
    "ü.tfrecord",
    "日本/x.tfrecord",
    "%20.tfrecord",
    "100%.tfrecord",
    "a%2Fb.tfrecord",
    "a#b.tfrecord",
    "a+b.tfrecord",
    "a&b=c.tfrecord",
    "a'b.tfrecord",
    'a"b.tfrecord',
    "a\\b.tfrecord",
    "a;b,c.tfrecord",
    "a@b.tfrecord",
    "a:b.tfrecord",
    "~a.tfrecord",
    "a|b^c`.tfrecord",
    "<a>.tfrecord",
    "..a.tfrecord",
    "a..tfrecord",
    "a/b c/d%d.tfrecord",
]
PATTERN = ["a?b.tfrecord", "a[1].tfrecord", "a*b.tfrecord"]
"""Names that look like patterns. One of these names alone means itself, where it is there."""
UNREACHABLE = ["a//b.tfrecord", "//b.tfrecord", "a/../b.tfrecord", "../b.tfrecord", "./a.tfrecord", "a/./b.tfrecord", "a\x01b.tfrecord"]  # fmt: skip


@pytest.fixture
def base(seaweed: Seaweed, prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in seaweed.options().items():
        monkeypatch.setenv(name.upper(), value)
    return f"s3://{prefix}"


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Files of which number n has the one record n."""
    folder = tmp_path_factory.mktemp("bodies")
    found: list[bytes] = []
    for number in range(40):
        ps.write({"id": [number]}, folder / "x.tfrecord", index=False, overwrite=True)
        found.append((folder / "x.tfrecord").read_bytes())
    return found


def ids(source: object) -> list[int]:
    return sorted(ps.open(source, index="never").to_table()["id"].to_pylist())


def put(seaweed: Seaweed, base: str, names: list[str], bodies: list[bytes]) -> dict[str, int]:
    for number, name in enumerate(names):
        seaweed.client.put(f"{base.removeprefix('s3://')}/{name}", bodies[number])
    return {name: number for number, name in enumerate(names)}


def test_odd_keys_are_read_by_name_pattern_folder_and_list(
    seaweed: Seaweed, base: str, bodies: list[bytes]
) -> None:
    numbers = put(seaweed, base, ODD + PATTERN, bodies)
    for name, number in numbers.items():
        assert ids(f"{base}/{name}") == [number], name
        assert ids([f"{base}/{name}"]) == [number], name
    assert ids([f"{base}/{name}" for name in numbers]) == sorted(numbers.values())
    del numbers["..a.tfrecord"]  # a hidden name
    every = sorted(numbers.values())
    assert ids(f"{base}/**/*.tfrecord") == every
    assert ids(f"{base}/**") == every
    assert ids(f"{base}/") == every
    assert ids(base) == every
    folder, _, _ = "a/b c/d".partition("/d")
    assert ids(f"{base}/{folder}/") == [numbers["a/b c/d%d.tfrecord"]]


def test_keys_that_no_client_reaches_are_refused_by_name_and_hide_no_others(
    seaweed: Seaweed, base: str, bodies: list[bytes]
) -> None:
    numbers = put(seaweed, base, ["good.tfrecord", "a/good.tfrecord"], bodies)
    for name in UNREACHABLE:
        with pytest.raises(ps.UnsupportedError) as refused:
            ps.open(f"{base}/{name}")
        assert refused.value.file == f"{base}/{name}"
    # What another client puts there does not break the listing of the others.
    seaweed.client.put(f"{base.removeprefix('s3://')}/a//foreign.txt", b"x")
    seaweed.client.put(f"{base.removeprefix('s3://')}/folder/", b"")
    assert ids(f"{base}/*.tfrecord") == [numbers["good.tfrecord"]]
    assert ids(f"{base}/**/*.tfrecord") == sorted(numbers.values())
    assert ids(f"{base}/a/*.tfrecord") == [numbers["a/good.tfrecord"]]


def test_keys_of_other_clients_are_left_out_and_named(
    monkeypatch: pytest.MonkeyPatch, bodies: list[bytes]
) -> None:
    # SeaweedFS cannot hold such keys, but S3 can.
    keys = ["p/a//b.tfrecord", "p/a/./c.tfrecord", "p/../d.tfrecord", "p/x&#1;y.tfrecord"]

    def answer(asked: Asked) -> Reply:
        if "list-type" in asked.query:
            wanted = parse_qs(asked.query)["prefix"][0]
            found = [key for key in [*keys, "p/good.tfrecord"] if key.startswith(wanted)]
            entry = (
                "<Contents><Key>{}</Key><Size>9</Size><ETag>x</ETag>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            )
            text = "".join(entry.format(key) for key in found)
            return Reply(200).with_body(f"<ListBucketResult>{text}</ListBucketResult>".encode())
        if asked.path != "/bucket/p/good.tfrecord":
            return Reply(404).with_body(b"")
        body = bodies[7]
        where = ("Content-Range", f"bytes 0-{len(body) - 1}/{len(body)}")
        dated = ("Last-Modified", "Wed, 21 Oct 2026 07:28:00 GMT")
        return Reply(206, [("ETag", '"x"'), where, dated]).with_body(body)

    with answering(answer) as endpoint:
        options = {"aws_endpoint_url": endpoint, "aws_allow_http": True, "aws_skip_signature": True}
        for name in ("p/*.tfrecord", "p/**/*.tfrecord", "p/", "p"):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                ds = ps.open(f"s3://bucket/{name}", storage_options=options)
            assert ds.to_table()["id"].to_pylist() == [7]
            left = [file.path for file in ds.skipped_files]
            assert len(left) == (1 if name == "p/*.tfrecord" else 4), (name, left)
            assert len(told) == 1 and "cannot be read" in str(told[0].message)


FOLDERS = itertools.count()
# SeaweedFS loses a backslash at the beginning of a name.
LETTERS = st.sampled_from(list("ab.-_ %+#&=~@:'\"()!$,;[]{}*?|^`<>üé日😀"))
NAMES = st.lists(st.text(LETTERS, min_size=1, max_size=6), min_size=1, max_size=3).map("/".join)


def is_plain(name: str) -> bool:
    """Whether a client can reach this key, and it is not of a hidden or marked file, which are left out."""
    parts = name.split("/")
    return all(part and part[0] not in "._" and not part.endswith("~") for part in parts)


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(names=st.lists(NAMES.filter(is_plain), min_size=1, max_size=6, unique=True))
def test_all_keys_of_a_folder_are_found_and_each_is_read_by_its_name(
    names: list[str], seaweed: Seaweed, common_bucket: str, bodies: list[bytes]
) -> None:
    base = f"s3://{common_bucket}/law-{next(FOLDERS)}"
    names = [f"{name}.tfrecord" for name in names]
    numbers = put(seaweed, base, names, bodies)
    options = seaweed.options()

    def found(source: object) -> list[int]:
        ds = ps.open(source, storage_options=options, index="never")
        return sorted(ds.to_table()["id"].to_pylist())

    every = sorted(numbers.values())
    assert found(f"{base}/**/*.tfrecord") == every
    assert found(f"{base}/") == every
    for name, wanted in numbers.items():
        assert wanted in found([f"{base}/{name}"]), name
