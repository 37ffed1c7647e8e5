"""rclone's server ignores conditions, which is what it is here for."""

from __future__ import annotations

from remote.servers.s3 import S3
from remote.servers.seaweed import Seaweed


def test_conditions_are_ignored(rclone: Seaweed) -> None:
    with rclone.bucket() as bucket:
        client, path = rclone.client, f"{bucket}/once"
        tag = client.put(path, b"first", if_none_match="*")
        client.put(path, b"second", if_none_match="*")
        assert client.get(path, if_match=tag) == b"second"


def test_signatures_are_checked(rclone: Seaweed) -> None:
    assert S3(rclone.endpoint, rclone.key_id, "another secret").call("GET", "").status == 403
