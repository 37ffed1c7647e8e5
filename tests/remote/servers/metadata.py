"""The services that give machines in a cloud their credentials: for a while, and then new ones."""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from remote.servers.answering import answering
from remote.servers.http1 import Asked, Reply, header
from remote.servers.seaweed import KEY_ID, SECRET

ROLE = "penstock-role"
TOKEN = "token-of-the-machine-4Wd"
ROLES = "/latest/meta-data/iam/security-credentials/"


@dataclass
class Metadata:
    """What it gives. Tests may change it at any time."""

    key_id: str = KEY_ID
    secret: str = SECRET
    session: str = ""
    """The session token of AWS. SeaweedFS accepts its own keys with an empty one only."""
    token: str = TOKEN
    """The bearer token of Azure and GCS."""
    seconds: float = 3600
    """How long credentials last. Clients ask for new ones some minutes before that."""
    given: int = 0
    """How often credentials were given."""
    endpoint: str = field(default="", init=False)

    def aws_options(self) -> dict[str, str]:
        """`storage_options` in place of keys: the metadata service of a machine (IMDSv2)."""
        return {"aws_metadata_endpoint": self.endpoint}

    def aws_container(self) -> dict[str, str]:
        """The environment of a container in place of keys."""
        return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.endpoint}/container"}

    def azure_options(self) -> dict[str, str]:
        """`storage_options` in place of a key: a managed identity."""
        return {"azure_msi_endpoint": f"{self.endpoint}/msi"}

    def gcs_environment(self) -> dict[str, str]:
        """The environment in place of a service account."""
        address = self.endpoint.removeprefix("http://")
        return {"GCE_METADATA_HOST": address, "GCE_METADATA_IP": address}

    def answer(self, asked: Asked) -> Reply:
        """The answer to a request."""
        path = asked.path
        if (asked.method, path) == ("PUT", "/latest/api/token"):
            return Reply(200).with_body(b"session-of-the-metadata")
        if path in (ROLES, ROLES + ROLE):
            if header(asked.headers, "x-aws-ec2-metadata-token") != "session-of-the-metadata":
                return Reply(401).with_body(b"")
            return Reply(200).with_body(ROLE.encode()) if path == ROLES else self._keys()
        if path == "/container":
            return self._keys()
        if path == "/msi" and header(asked.headers, "metadata") == "true":
            return self._token({"expires_on": str(int(time.time() + self.seconds))})
        if path == "/computeMetadata/v1/instance/service-accounts/default/token":
            return self._token({"expires_in": int(self.seconds)})
        return Reply(404).with_body(b"")

    def _keys(self) -> Reply:
        end = datetime.now(UTC) + timedelta(seconds=self.seconds)
        return self._json(
            {
                "Code": "Success",
                "Type": "AWS-HMAC",
                "AccessKeyId": self.key_id,
                "SecretAccessKey": self.secret,
                "Token": self.session,
                "Expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )

    def _token(self, expires: dict[str, object]) -> Reply:
        return self._json({"access_token": self.token, "token_type": "Bearer", **expires})

    def _json(self, given: dict[str, object]) -> Reply:
        self.given += 1
        kind = ("Content-Type", "application/json")
        return Reply(200, [kind]).with_body(json.dumps(given).encode())


@contextmanager
def metadata() -> Generator[Metadata]:
    """Run the service in threads of this process."""
    state = Metadata()
    with answering(state.answer) as state.endpoint:
        yield state
