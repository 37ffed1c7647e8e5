"""SeaweedFS keeps S3's promises that penstock builds on."""

from __future__ import annotations

from remote.servers.s3 import S3, request
from remote.servers.seaweed import Seaweed

BODY = bytes(range(256)) * 1000


def test_ranges_and_conditions_of_reads(seaweed: Seaweed, bucket: str) -> None:
    client, path = seaweed.client, f"{bucket}/folder/ü key"
    tag = client.put(path, BODY)
    part = client.call("GET", path, headers={"range": "bytes=10-19", "if-match": tag})
    assert (part.status, part.body) == (206, BODY[10:20])
    assert part.headers["content-range"] == f"bytes 10-19/{len(BODY)}"
    assert part.headers["etag"] == tag
    client.put(path, BODY[::-1])
    assert client.call("GET", path, headers={"if-match": tag}).status == 412


def test_create_only_writes(seaweed: Seaweed, bucket: str) -> None:
    client, path = seaweed.client, f"{bucket}/once"
    client.put(path, b"first", if_none_match="*")
    again = client.call("PUT", path, headers={"if-none-match": "*"}, body=b"second")
    assert again.status == 412
    assert client.get(path) == b"first"


def test_listing_has_pages(seaweed: Seaweed, bucket: str) -> None:
    client = seaweed.client
    keys = [f"p/{n:03d}" for n in range(7)]
    for key in keys:
        client.put(f"{bucket}/{key}", b"")
    query = {"list-type": "2", "prefix": "p/", "max-keys": "3"}
    page = client.done("GET", bucket, query=query).body
    assert page.count(b"<Key>") == 3
    assert b"<IsTruncated>true</IsTruncated>" in page
    assert client.keys(bucket, "p/") == keys


def test_open_uploads_are_listed(seaweed: Seaweed, bucket: str) -> None:
    client = seaweed.client
    client.done("POST", f"{bucket}/large", query={"uploads": ""})
    assert client.uploads(bucket) == ["large"]


def test_signatures_are_checked(seaweed: Seaweed, bucket: str) -> None:
    seaweed.client.put(f"{bucket}/k", b"text")
    wrong = S3(seaweed.endpoint, seaweed.key_id, "another secret")
    assert wrong.call("GET", f"{bucket}/k").status == 403
    assert S3(seaweed.endpoint).call("GET", f"{bucket}/k").status == 403


def test_presigned_addresses_open_one_object(seaweed: Seaweed, bucket: str) -> None:
    seaweed.client.put(f"{bucket}/k", b"text")
    url = seaweed.client.presigned(f"{bucket}/k")
    assert request("GET", url).body == b"text"
    assert request("GET", url.replace("/k?", "/l?")).status == 403


def test_every_bucket_begins_empty(seaweed: Seaweed) -> None:
    with seaweed.bucket() as one, seaweed.bucket() as other:
        seaweed.client.put(f"{one}/k", b"")
        assert seaweed.client.keys(other) == []
    assert seaweed.client.call("HEAD", one).status == 404


def test_versions_are_kept(seaweed: Seaweed) -> None:
    with seaweed.bucket(versions=True) as bucket:
        client, path = seaweed.client, f"{bucket}/k"
        first = client.done("PUT", path, body=b"first").headers["x-amz-version-id"]
        client.put(path, b"second")
        assert client.done("GET", path, query={"versionId": first}).body == b"first"
        now = client.done("GET", path)
        assert (now.body, now.headers["x-amz-version-id"] == first) == (b"second", False)


def test_gcs_conditions_are_understood(gcs: Seaweed) -> None:
    condition = "x-goog-if-generation-match"
    with gcs.bucket() as bucket:
        client, path = gcs.client, f"{bucket}/once"
        client.done("PUT", path, headers={condition: "0"}, body=b"first")
        assert client.call("PUT", path, headers={condition: "0"}, body=b"second").status == 412
        client.put(path, b"third")
        assert client.get(path, range="bytes=1-2") == b"hi"
