"""Files of several formats on servers of other kinds than S3 are read as on this machine: scanned, by number, and by a
loader."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from remote.servers.azure import Azure
from remote.servers.nginx import SIGNATURE, Nginx
from remote.servers.seaweed import Seaweed

COUNT = 400
NAMES = ("x ü+1.tfrecord", "x.tar", "x.parquet", "x.arrow", "x.h5", "x.beton", "x.npz")
FAST = NAMES[:3]
"""The files of the normal run."""


each_name = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.stress) for n in NAMES]
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("containers")
    rng = np.random.default_rng(5)
    data = pa.table({"id": range(COUNT), "blob": [rng.bytes(700) for _ in range(COUNT)]})
    for name in NAMES:
        ps.write(data, folder / name, index=False)
    return {name: folder / name for name in NAMES}


def check(here: Path, url: str, options: dict[str, Any]) -> None:
    local, there = ps.open(here), ps.open(url, storage_options=options)
    assert there.schema == local.schema
    wanted = local.to_table(["id", "blob"])
    assert there.to_table(["id", "blob"]) == wanted
    numbers = [COUNT - 1, 3, 3, 200]
    assert there.take(numbers, ["id", "blob"]) == local.take(numbers, ["id", "blob"])
    loader = ps.Loader(there, 64, order=ps.Shuffled(seed=1), columns=["id"])
    assert sorted(int(one) for batch in loader for one in batch["id"]) == list(range(COUNT))
    assert ps.verify(url, storage_options=options).ok


@each_name
@pytest.mark.parametrize("place", ["strong", "weak", "untagged", "undated", "moved", "signed"])
def test_a_web_server(
    place: str,
    name: str,
    files: dict[str, Path],
    nginx_tls: Nginx,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(nginx_tls.authority))
    shutil.copy(files[name], nginx_tls.files)
    url = f"{nginx_tls.endpoint}/{place}/{quote(name)}"
    check(files[name], f"{url}?sig={SIGNATURE}" if place == "signed" else url, {})


@each_name
def test_google_cloud_storage(name: str, files: dict[str, Path], gcs: Seaweed) -> None:
    with gcs.bucket() as bucket:
        gcs.client.put(f"{bucket}/a/{name}", files[name].read_bytes())
        check(files[name], f"gs://{bucket}/a/{name}", gcs.gcs_options())


@each_name
@pytest.mark.parametrize("scheme", ["az", "abfs"])
def test_azure(
    scheme: str, name: str, files: dict[str, Path], azure: Azure, container: str
) -> None:
    url, options = f"{scheme}://{container}/a/{name}", azure.options()
    data = ps.open(files[name]).to_table()
    ps.write(data, url, storage_options=options, index=False)
    check(files[name], url, options)


@each_name
def test_a_presigned_address_of_s3(
    name: str, files: dict[str, Path], seaweed: Seaweed, prefix: str
) -> None:
    seaweed.client.put(f"{prefix}/{name}", files[name].read_bytes())
    check(files[name], seaweed.client.presigned(f"{prefix}/{name}"), {"allow_http": True})
