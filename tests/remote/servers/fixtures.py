"""The servers as fixtures: each is started by the first test that asks for it, once per test process."""

from __future__ import annotations

import itertools
from collections.abc import Generator

import pytest

from remote.servers import azure as blobs
from remote.servers import nginx as web
from remote.servers import rclone as careless
from remote.servers import seaweed as weed
from remote.servers.seaweed import Seaweed

numbers = itertools.count()


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Generator[Seaweed]:
    """An S3 server that checks signatures."""
    with weed.seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        yield server


@pytest.fixture
def bucket(seaweed: Seaweed) -> Generator[str]:
    """A new bucket of it. Its first object takes 0.2 s."""
    with seaweed.bucket() as name:
        yield name


@pytest.fixture(scope="session")
def common_bucket(seaweed: Seaweed) -> Generator[str]:
    """A bucket that all tests share."""
    with seaweed.bucket() as name:
        yield name


@pytest.fixture
def prefix(common_bucket: str) -> str:
    """A place of this test's own in it, such as "bucket-12-0/test-3"."""
    return f"{common_bucket}/test-{next(numbers)}"


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Generator[Seaweed]:
    """An anonymous server that penstock's GCS client can use, with `gcs_options()`."""
    with (
        weed.seaweed(tmp_path_factory.mktemp("anonymous"), anonymous=True) as store,
        web.gcs(tmp_path_factory.mktemp("gcs"), store) as server,
    ):
        yield server


@pytest.fixture(scope="session")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Generator[Seaweed]:
    """An S3 server that ignores conditions."""
    with careless.rclone(tmp_path_factory.mktemp("rclone")) as server:
        yield server


@pytest.fixture(scope="session")
def azure() -> Generator[blobs.Azure]:
    """A server for Azure's client."""
    with blobs.azure() as server:
        yield server


@pytest.fixture
def container(azure: blobs.Azure) -> Generator[str]:
    """A new container of it."""
    with azure.container() as name:
        yield name


@pytest.fixture(scope="session")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> Generator[web.Nginx]:
    """A server of files."""
    with web.nginx(tmp_path_factory.mktemp("nginx")) as server:
        yield server


@pytest.fixture(scope="session")
def nginx_tls(tmp_path_factory: pytest.TempPathFactory) -> Generator[web.Nginx]:
    """The same with TLS."""
    with web.nginx(tmp_path_factory.mktemp("nginx-tls"), tls=True) as server:
        yield server


__all__ = [
    "azure",
    "bucket",
    "common_bucket",
    "container",
    "gcs",
    "nginx",
    "nginx_tls",
    "prefix",
    "rclone",
    "seaweed",
]  # fmt: skip
