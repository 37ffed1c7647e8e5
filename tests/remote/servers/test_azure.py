"""The server for Azure's client does what the documentation of the interface says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import quote

from remote.servers.azure import Azure
from remote.servers.azure_signatures import VERSION, shared_key, text_to_sign
from remote.servers.http1 import Asked
from remote.servers.s3 import Answer, request

BODY = bytes(range(256)) * 10
BLOCK = {"x-ms-blob-type": "BlockBlob"}


def call(
    azure: Azure, method: str, target: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> Answer:
    """A request that is signed by the account's key."""
    now = format_datetime(datetime.now(UTC), usegmt=True)
    given = {"x-ms-date": now, "x-ms-version": VERSION, **(headers or {})}
    if method in ("PUT", "POST"):
        given["content-length"] = str(len(body))
    given["authorization"] = shared_key(Asked(method, target, list(given.items())))
    return request(method, azure.endpoint + target, given, body)


def test_conditional_writes(azure: Azure, container: str) -> None:
    target = f"/{container}/a/{quote('ü k')}"
    first = call(azure, "PUT", target, BLOCK | {"if-none-match": "*"}, BODY)
    assert first.status == 201
    again = call(azure, "PUT", target, BLOCK | {"if-none-match": "*"}, b"")
    assert (again.status, again.headers["x-ms-error-code"]) == (409, "BlobAlreadyExists")
    assert call(azure, "PUT", target, BLOCK | {"if-match": '"x"'}).status == 412
    assert call(azure, "PUT", target, {}, BODY).status == 400
    assert call(azure, "GET", target).body == BODY


def test_reads(azure: Azure, container: str) -> None:
    target, tag = f"/{container}/k", azure.put(container, "k", BODY)
    part = call(azure, "GET", target, {"range": "bytes=10-19", "if-match": f'"{tag}"'})
    assert (part.status, part.body) == (206, BODY[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(BODY)}"
    assert part.headers["etag"] == f'"{tag}"'
    head = call(azure, "HEAD", target)
    assert (head.headers["content-length"], head.body) == (str(len(BODY)), b"")
    assert call(azure, "GET", target, {"range": "bytes=99999-"}).status == 416
    assert call(azure, "GET", target, {"range": "bytes=-5"}).status == 400
    azure.put(container, "k", b"other")
    assert call(azure, "GET", target, {"if-match": f'"{tag}"'}).status == 412
    missing = call(azure, "GET", f"/{container}/l")
    assert (missing.status, missing.headers["x-ms-error-code"]) == (404, "BlobNotFound")


def test_blocks_become_a_blob_when_they_are_committed(azure: Azure, container: str) -> None:
    target = f"/{container}/large"
    for number, body in (("AAAB", BODY), ("AAAC", BODY[::-1])):
        assert call(azure, "PUT", f"{target}?comp=block&blockid={number}", {}, body).status == 201
    assert call(azure, "PUT", f"{target}?comp=block&blockid=AAABAAAB", {}, b"").status == 400
    assert call(azure, "GET", target).status == 404
    assert azure.uncommitted(container) == ["large"]

    def commit(*numbers: str) -> int:
        text = "".join(f"<Latest>{number}</Latest>" for number in numbers)
        body = f"<BlockList>{text}</BlockList>".encode()
        return call(azure, "PUT", f"{target}?comp=blocklist", {}, body).status

    assert commit("AAAB", "AAAD") == 400
    assert commit("AAAC", "AAAB") == 201
    assert call(azure, "GET", target).body == BODY[::-1] + BODY
    assert azure.uncommitted(container) == []


def test_listings_have_pages_and_folders(azure: Azure, container: str) -> None:
    tag = azure.put(container, "a<1", b"xy")
    for name in ("d/1", "d/2", "e/1", "f"):
        azure.put(container, name, b"")
    base = f"/{container}?restype=container&comp=list"

    def names(more: str) -> tuple[list[str], str]:
        text = call(azure, "GET", base + more).body.decode()
        marker = re.search("<NextMarker>(.*)</NextMarker>", text)
        assert marker
        return re.findall("<Name>(.*?)</Name>", text), marker[1]

    assert names("") == (["a&lt;1", "d/1", "d/2", "e/1", "f"], "")
    assert names("&prefix=d/") == (["d/1", "d/2"], "")
    assert names("&delimiter=/&maxresults=2") == (["a&lt;1", "d/"], "e/")
    assert names("&delimiter=/&maxresults=2&marker=e/") == (["e/", "f"], "")
    assert f"<Etag>{tag}</Etag><Content-Length>2<" in call(azure, "GET", base).body.decode()


def test_the_signed_text_is_the_one_of_the_documentation() -> None:
    # "Authorize with Shared Key", the example of Get Container Metadata.
    asked = Asked(
        "GET",
        "/mycontainer?restype=container&comp=metadata&timeout=20",
        [("x-ms-version", "2015-02-21"), ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT")],
    )
    assert text_to_sign(asked, "myaccount") == (
        "GET\n\n\n\n\n\n\n\n\n\n\n\n"
        "x-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n"
        "/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
    )


def test_keys_are_checked(azure: Azure, container: str) -> None:
    azure.put(container, "k", BODY)
    target = f"/{container}/k"
    assert request("GET", azure.endpoint + target).status == 401
    asked = Asked("GET", target, [("x-ms-date", "today")])
    headers = {"x-ms-date": "today", "authorization": shared_key(asked)}
    assert request("GET", azure.endpoint + target, headers).status == 200
    headers["x-ms-date"] = "tomorrow"
    assert request("GET", azure.endpoint + target, headers).status == 403


def test_shared_access_signatures_are_checked(azure: Azure, container: str) -> None:
    azure.put(container, "k", BODY)
    address = f"{azure.endpoint}/{container}/k"
    assert request("GET", f"{address}?{azure.sas('r')}").body == BODY
    assert request("PUT", f"{address}?{azure.sas('r')}", BLOCK).status == 403
    assert request("GET", f"{address}?{azure.sas('r', -1)}").status == 403
    assert request("GET", f"{address}?{azure.sas('r').replace('sp=r', 'sp=rw')}").status == 403


def test_deletions(azure: Azure, container: str) -> None:
    azure.put(container, "k", b"")
    assert call(azure, "DELETE", f"/{container}/k").status == 202
    assert call(azure, "DELETE", f"/{container}/k").status == 404


def test_containers(azure: Azure) -> None:
    target = "/new?restype=container"
    assert [call(azure, "PUT", target).status for _ in range(2)] == [201, 409]
    assert [call(azure, "DELETE", target).status for _ in range(2)] == [202, 404]
    assert call(azure, "GET", "/new/k").headers["x-ms-error-code"] == "ContainerNotFound"
