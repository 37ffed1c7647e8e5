"""The services of credentials answer as those of the clouds, and the stores accept what they give."""

from __future__ import annotations

import json

from remote.servers.azure import Azure
from remote.servers.metadata import ROLE, ROLES, TOKEN, metadata
from remote.servers.s3 import S3, request
from remote.servers.seaweed import Seaweed


def test_keys_of_a_machine_open_the_store(seaweed: Seaweed) -> None:
    with metadata() as service:
        assert request("GET", service.endpoint + ROLES).status == 401
        session = request("PUT", f"{service.endpoint}/latest/api/token").body.decode()
        headers = {"X-aws-ec2-metadata-token": session}
        role = request("GET", service.endpoint + ROLES, headers).body.decode()
        assert role == ROLE
        for address in (service.endpoint + ROLES + role, f"{service.endpoint}/container"):
            keys = json.loads(request("GET", address, headers).body)
            client = S3(seaweed.endpoint, keys["AccessKeyId"], keys["SecretAccessKey"])
            assert client.call("GET", "").status == 200
        assert service.given == 2


def test_tokens_of_a_machine_open_azure(azure: Azure, container: str) -> None:
    azure.put(container, "k", b"text")
    with metadata() as service:
        given = json.loads(request("GET", f"{service.endpoint}/msi", {"Metadata": "true"}).body)
    address = f"{azure.endpoint}/{container}/k"
    bearer = {"Authorization": f"Bearer {given['access_token']}"}
    assert request("GET", address, bearer).status == 403
    azure.tokens.add(TOKEN)
    assert request("GET", address, bearer).body == b"text"
    azure.tokens.clear()


def test_tokens_of_a_machine_open_gcs(gcs: Seaweed) -> None:
    with metadata() as service:
        path = "/computeMetadata/v1/instance/service-accounts/default/token"
        given = json.loads(request("GET", service.endpoint + path).body)
    assert (
        request("GET", gcs.endpoint, {"Authorization": f"Bearer {given['access_token']}"}).status
        == 200
    )
