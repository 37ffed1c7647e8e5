"""Listings and names of the core's store."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from penstock._core import ObjectState, RemoteStore, StoreError
from remote.liar import Answer, Request, Serve, kind, s3, send


def listing(*keys: str, folders: tuple[str, ...] = (), token: str = "", end: str = "") -> Answer:
    def answer(request: Request, connection: socket.socket) -> None:
        objects = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-10-21T07:28:00.000Z</LastModified>"
            f"<ETag>&quot;{k}&quot;</ETag><Size>{k}</Size></Contents>"
            for k, key in enumerate(keys)
        )
        below = "".join(
            f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in folders
        )
        more = (
            f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
            if token
            else "<IsTruncated>false</IsTruncated>"
        )
        text = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>bucket</Name>'
            f"<Prefix>p</Prefix>{more}{objects}{below}</ListBucketResult>"
        )
        text = text.replace(end, "") if end else text
        body = text.encode()
        send(connection, "200 OK", {"Content-Length": str(len(body))}, body)

    return answer


NAMES = [
    "p",
    "p//q",
    "p/",
    "p/../x",
    "p/./x",
    "p%20x",
    "p+x",
    "p&amp;x",
    "p&#x20;y",
    "pü",
    "p&#46;",
]
READ = ["p", "p//q", "p/", "p/../x", "p/./x", "p%20x", "p+x", "p&x", "p y", "pü", "p."]


def test_a_listing_gives_every_name_as_it_is(serve: Serve) -> None:
    server = serve(listing(*NAMES[:4], token="more"), listing(*NAMES[4:]))
    found = RemoteStore("s3://bucket", s3(server)).list("p")
    assert [key for key, _ in found] == sorted(READ, key=str.encode)
    assert dict(found)["p//q"] == ObjectState(1, '"1"', None, 1792567680000)
    assert "continuation-token=more" in server.seen[1].target
    assert all("prefix=p" in request.target for request in server.seen)


def test_folders_of_any_name_are_listed(serve: Serve) -> None:
    server = serve(listing("p/1", folders=("p/a/", "p//", "p/../", "p/&amp;/")))
    objects, folders = RemoteStore("s3://bucket", s3(server)).list_folder("p/")
    assert [key for key, _ in objects] == ["p/1"]
    assert folders == sorted(["p/a/", "p//", "p/../", "p/&/"])
    assert "delimiter=%2F" in server.seen[0].target


@pytest.mark.parametrize(
    "end", ["</ListBucketResult>", "<NextContinuationToken>more</NextContinuationToken>"]
)
def test_a_listing_that_is_cut_is_asked_for_again_and_never_believed(
    serve: Serve, end: str
) -> None:
    cut = listing("a", "b", token="more", end=end)
    good = [listing("a", "b", "c", token="more"), listing("d")]
    store = RemoteStore("s3://bucket", s3(serve(cut, *good)))
    assert [key for key, _ in store.list("")] == ["a", "b", "c", "d"]
    with pytest.raises(StoreError, match="listing"):
        RemoteStore("s3://bucket", s3(serve(always=cut))).list("")


def test_a_listing_in_a_circle_ends(serve: Serve) -> None:
    store = RemoteStore("s3://bucket", s3(serve(always=listing("a", token="more"))))
    with pytest.raises(StoreError, match="circle"):
        store.list("")


@pytest.mark.parametrize("key", ["x?X-Amz-Signature=secret", "x#secret"])
def test_a_query_in_a_name_is_refused_and_not_shown(serve: Serve, key: str) -> None:
    server = serve()
    with pytest.raises(StoreError, match="cannot be read") as error:
        RemoteStore(server.url, {}).head(key)
    assert "secret" not in str(error.value)
    assert not server.seen


def test_a_web_server_has_no_listing(serve: Serve) -> None:
    with pytest.raises(StoreError, match="no listing") as error:
        RemoteStore(serve().url, {}).list("")
    assert kind(error) == "unsupported"


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", "./a", "..", "a\nb"])
def test_names_that_would_read_another_object_are_refused(serve: Serve, key: str) -> None:
    server = serve()
    store = RemoteStore("s3://bucket", s3(server))
    works: list[Callable[[], object]] = [
        lambda: store.head(key),
        lambda: store.delete(key),
        lambda: store.first(key, 0, 1),
    ]
    for work in works:
        with pytest.raises(StoreError, match="cannot be read") as error:
            work()
        assert kind(error) == "unsupported"
    assert not server.seen
