"""nginx serves files with and without what identifies their state."""

from __future__ import annotations

import ssl
import urllib.request

import pytest

from remote.servers.nginx import SIGNATURE, Nginx
from remote.servers.s3 import request

BODY = bytes(range(256)) * 40


@pytest.fixture
def name(nginx: Nginx) -> str:
    (nginx.files / "body.bin").write_bytes(BODY)
    return "body.bin"


@pytest.mark.parametrize(
    ("place", "tag", "dated"),
    [
        ("strong", '"', True),
        ("weak", 'W/"', True),
        ("untagged", None, True),
        ("undated", None, False),
    ],
)
def test_what_identifies_a_state(
    nginx: Nginx, name: str, place: str, tag: str | None, dated: bool
) -> None:
    answer = request("GET", f"{nginx.endpoint}/{place}/{name}", {"Range": "bytes=5-9"})
    assert (answer.status, answer.body) == (206, BODY[5:10])
    assert answer.headers["content-range"] == f"bytes 5-9/{len(BODY)}"
    found = answer.headers.get("etag")
    assert found is None if tag is None else str(found).startswith(tag)
    assert ("last-modified" in answer.headers) is dated


def test_another_state_is_refused(nginx: Nginx, name: str) -> None:
    asked = {"Range": "bytes=5-9", "If-Match": '"1-1"'}
    assert request("GET", f"{nginx.endpoint}/strong/{name}", asked).status == 412
    asked = {"Range": "bytes=5-9", "If-Unmodified-Since": "Mon, 01 Jan 2001 00:00:00 GMT"}
    assert request("GET", f"{nginx.endpoint}/untagged/{name}", asked).status == 412


def test_ranges_are_ignored_where_asked(nginx: Nginx, name: str) -> None:
    answer = request("GET", f"{nginx.endpoint}/whole/{name}", {"Range": "bytes=5-9"})
    assert (answer.status, answer.body) == (200, BODY)


def test_redirects(nginx: Nginx, name: str) -> None:
    answer = request("GET", f"{nginx.endpoint}/moved/{name}")
    assert (answer.status, answer.headers["location"]) == (302, f"{nginx.endpoint}/strong/{name}")
    answer = request("GET", f"{nginx.endpoint}/circle/{name}")
    assert (answer.status, answer.headers["location"]) == (302, f"{nginx.endpoint}/circle/{name}")


def test_signed_addresses(nginx: Nginx, name: str) -> None:
    address = f"{nginx.endpoint}/signed/{name}"
    assert request("GET", f"{address}?sig={SIGNATURE}").body == BODY
    assert request("GET", f"{address}?sig=x").status == 403


def test_tls_is_verified_by_the_tests_authority(nginx_tls: Nginx) -> None:
    (nginx_tls.files / "body.bin").write_bytes(BODY)
    trust = ssl.create_default_context(cafile=str(nginx_tls.authority))
    with urllib.request.urlopen(f"{nginx_tls.endpoint}/strong/body.bin", context=trust) as answer:
        assert answer.read() == BODY
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{nginx_tls.endpoint}/strong/body.bin")
