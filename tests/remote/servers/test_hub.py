"""huggingface_hub's own client reads from the server as it reads from the Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, HfFileSystem, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RevisionNotFoundError

from remote.servers.hub import Hub, hub

NAME = "some/set"
BODY = bytes(range(256)) * 40
FILES = {
    "a b.bin": BODY,
    "data/train-0.bin": BODY[::-1],
    "data/deep/x": b"x",
    "data/train-1.bin": b"",
}


def client(server: Hub, **options: Any) -> HfFileSystem:
    return HfFileSystem(endpoint=server.endpoint, skip_instance_cache=True, **options)


@pytest.mark.parametrize("redirects", [True, False])
def test_files_and_ranges(redirects: bool) -> None:
    with hub() as server:
        server.redirects = redirects
        server.put(NAME, FILES)
        files = client(server)
        assert files.cat_file(f"datasets/{NAME}/a b.bin", start=10, end=20) == BODY[10:20]
        assert files.cat_file(f"datasets/{NAME}/data/train-0.bin") == BODY[::-1]
        with files.open(f"datasets/{NAME}/a b.bin") as opened:
            opened.seek(-5, 2)
            assert opened.read() == BODY[-5:]
        assert files.info(f"datasets/{NAME}/a b.bin")["size"] == len(BODY)
        with pytest.raises(FileNotFoundError):
            files.info(f"datasets/{NAME}/none")


@pytest.mark.parametrize("page", [1, 1000])
def test_listings(page: int) -> None:
    with hub() as server:
        server.page = page
        server.put(NAME, FILES)
        files, base = client(server), f"datasets/{NAME}"
        assert files.glob(f"{base}/data/train-*.bin") == [
            f"{base}/data/train-{n}.bin" for n in (0, 1)
        ]
        assert files.find(base) == [f"{base}/{name}" for name in sorted(FILES)]
        listed = {one["name"]: one["type"] for one in files.ls(f"{base}/data")}
        assert listed == {
            f"{base}/data/deep": "directory",
            f"{base}/data/train-0.bin": "file",
            f"{base}/data/train-1.bin": "file",
        }


def test_commits_stay_as_they_were() -> None:
    with hub() as server:
        first = server.put(NAME, {"k": b"first"})
        second = server.put(NAME, {"k": b"second"})
        files = client(server)
        assert files.cat_file(f"datasets/{NAME}@{first}/k") == b"first"
        assert files.cat_file(f"datasets/{NAME}/k") == b"second"
        api = HfApi(endpoint=server.endpoint)
        assert api.dataset_info(NAME).sha == second
        with pytest.raises(RevisionNotFoundError):
            api.dataset_info(NAME, revision="0" * 40)


def test_tokens_are_checked() -> None:
    with hub("secret-token") as server:
        server.put(NAME, FILES)
        files = client(server, token="secret-token")
        assert files.cat_file(f"datasets/{NAME}/a b.bin") == BODY
        with pytest.raises(HfHubHTTPError):
            HfApi(endpoint=server.endpoint, token=False).dataset_info(NAME)


def test_downloads(tmp_path: Path) -> None:
    with hub() as server:
        server.put(NAME, FILES)
        asked: dict[str, Any] = {
            "repo_type": "dataset",
            "endpoint": server.endpoint,
            "cache_dir": tmp_path,
        }
        assert Path(hf_hub_download(NAME, "a b.bin", **asked)).read_bytes() == BODY
        with pytest.raises(EntryNotFoundError):
            hf_hub_download(NAME, "none", **asked)
