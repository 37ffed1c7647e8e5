"""Objects are read as local files are: the same records, by fewer requests than files."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from penstock.storage._object_source import AHEAD
from penstock.storage.objects import ObjectStorage
from remote.servers.nginx import SIGNATURE, Nginx
from remote.servers.seaweed import SECRET, Seaweed

FORMATS = {
    "tfrecord": "x.tfrecord",
    "gzip": "x.tfrecord.gz",
    "tar": "x.tar",
    "recordio": "x.rec",
    "beton": "x.beton",
    "npy": "x.npy",
    "npz": "x.npz",
    "hdf5": "x.h5",
    "parquet": "x.parquet",
    "arrow": "x.arrow",
    "msgpack": "x.msgpack",
}
COUNT = 500


def table(first: int = 0, count: int = COUNT) -> pa.Table:
    numbers = range(first, first + count)
    values = [[float(n), n / 2, -n] for n in numbers]
    return pa.table(
        {"id": pa.array(numbers, pa.int64()), "x": pa.array(values, pa.list_(pa.float32(), 3))}
    )


def put(server: Seaweed, path: str, file: Path) -> str:
    """Store a file, and return its URL."""
    server.client.done("PUT", path, body=file.read_bytes())
    return f"s3://{path}"


@pytest.fixture
def options(seaweed: Seaweed) -> dict[str, str]:
    return seaweed.options()


def written(path: Path, data: pa.Table) -> Path:
    if path.suffix == ".rec":
        data = pa.table({"data": pa.array(map(str, data["id"].to_pylist())).cast(pa.binary())})
    if path.suffix == ".npy":
        data = pa.table({"data": data["id"]})
    ps.write(data, path, index=False)
    return path


@pytest.mark.parametrize("name", FORMATS.values(), ids=FORMATS)
def test_an_object_has_the_records_of_the_file(
    name: str, tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    file = written(tmp_path / name, table())
    url = put(seaweed, f"{prefix}/{name}", file)
    here, there = ps.open(file), ps.open(url, storage_options=options)
    assert there.schema == here.schema
    assert there.to_table() == here.to_table()
    assert len(there) == COUNT
    numbers = [499, 3, 3, 250]
    assert there.take(numbers) == here.take(numbers)
    assert ps.verify(url, storage_options=options).ok


def test_names_stand_for_objects_as_for_files(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    for number in range(3):
        file = written(tmp_path / f"t-{number:05}-of-00003.tfrecord", table(10 * number, 10))
        put(seaweed, f"{prefix}/a/{file.name}", file)
    put(seaweed, f"{prefix}/a/.hidden.tfrecord", file)
    put(seaweed, f"{prefix}/a/b/deep.tfrecord", file)
    base = f"s3://{prefix}/a"

    def ids(source: Any) -> list[int]:
        return ps.open(source, storage_options=options).to_table()["id"].to_pylist()

    every = list(range(30))
    assert ids(f"{base}/t-*.tfrecord") == every
    assert (
        ids(
            f"{base}/t@3.tfrecord".replace("@3.tfrecord", ".tfrecord@3").replace(
                "t.tfrecord@3", "t@3.tfrecord"
            )
        )
        == every
    )
    assert ids(f"{base}/t@*.tfrecord") == every
    assert ids(f"{base}/t-{{00000..00002}}-of-00003.tfrecord") == every
    assert ids([f"{base}/t-0000{n}-of-00003.tfrecord" for n in range(3)]) == every
    assert ids(f"{base}/") == [*range(20, 30), *every]
    assert ids(f"{base}/**/*.tfrecord") == [*range(20, 30), *every]
    assert ids(f"{base}/b") == list(range(20, 30))
    with pytest.raises(FileNotFoundError, match="no object matches"):
        ids(f"{base}/u-*.tfrecord")
    with pytest.raises(FileNotFoundError, match="no such object"):
        ids(f"{base}/u.tfrecord")


def test_a_replaced_object_is_an_error_and_never_a_mixture(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    path = f"{prefix}/x.tfrecord"
    large = {"id": range(100), "blob": [os.urandom(600_000) for _ in range(100)]}
    ps.write(large, tmp_path / "x.tfrecord", index=False)
    url = put(seaweed, path, tmp_path / "x.tfrecord")
    ds = ps.open(url, storage_options=options)
    assert ds.head(1)["id"].to_pylist() == [0]
    put(seaweed, path, tmp_path / "x.tfrecord")  # the same bytes are the same state
    assert len(ds.to_table()) == 100
    ds = ps.open(url, storage_options=options)
    large["id"] = range(100, 200)
    ps.write(large, tmp_path / "y.tfrecord", index=False)
    put(seaweed, path, tmp_path / "y.tfrecord")
    with pytest.raises(ps.ChangedError, match="changed or replaced"):
        ds.to_table()
    seaweed.client.done("DELETE", path)
    with pytest.raises(ps.ChangedError, match="removed"):
        ds.to_table()


def test_a_secret_is_shown_nowhere(
    tmp_path: Path,
    seaweed: Seaweed,
    prefix: str,
    options: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = put(seaweed, f"{prefix}/x.tfrecord", written(tmp_path / "x.tfrecord", table()))
    ds = ps.open(url, storage_options=options)
    assert SECRET not in repr(ds) + repr(ds.files.storage) + str(vars(ds.files.storage))
    with pytest.raises(ps.UnsupportedError, match="secret") as refused:
        pickle.dumps(ds)
    assert SECRET not in str(refused.value)
    again = pickle.loads(
        pickle.dumps(ps.open(url, storage_options=options | {"pickle_secrets": "true"}))
    )
    assert again.to_table() == ds.to_table()
    for name, value in options.items():
        monkeypatch.setenv(name.upper(), value)
    bare = pickle.dumps(ps.open(url))
    assert SECRET.encode() not in bare
    assert pickle.loads(bare).to_table() == ds.to_table()
    with pytest.raises(ps.StorageError) as wrong:
        ps.open(url, storage_options=options | {"aws_secret_access_key": "wrong-secret-1"})
    assert "wrong-secret-1" not in str(wrong.value) and "credentials" in str(wrong.value)


def test_a_forked_child_reads(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    url = put(seaweed, f"{prefix}/x.tfrecord", written(tmp_path / "x.tfrecord", table()))
    ds = ps.open(url, storage_options=options)
    assert len(ds) == COUNT
    for _ in range(5):
        child = os.fork()
        if not child:
            status = 1
            try:
                status = 0 if ds.take([7])["id"].to_pylist() == [7] else 2
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


WEB = ["strong", "weak", "untagged", "undated", "moved"]


@pytest.mark.parametrize("place", WEB)
def test_a_web_server_of_any_kind_is_read(place: str, tmp_path: Path, nginx: Nginx) -> None:
    file = written(tmp_path / f"{place} ü+1.tar", table())
    shutil.copy(file, nginx.files)
    options = {"allow_http": True}
    here = ps.open(file)
    there = ps.open(f"{nginx.endpoint}/{place}/{quote(file.name)}", storage_options=options)
    assert there.to_table() == here.to_table()
    assert there.take([499, 3])["id"] == here.take([499, 3])["id"]


def test_a_signed_address_is_read_and_never_shown(tmp_path: Path, nginx: Nginx) -> None:
    shutil.copy(written(tmp_path / "x.tfrecord", table()), nginx.files)
    url = f"{nginx.endpoint}/signed/x.tfrecord?sig={SIGNATURE}"
    ds = ps.open(url, storage_options={"allow_http": True})
    assert len(ds) == COUNT
    assert SIGNATURE not in repr(ds) + str(ds.shards)
    with pytest.raises(ps.StorageError) as refused:
        ps.open(url.replace(SIGNATURE, "wrong-signature"), storage_options={"allow_http": True})
    assert "wrong-signature" not in str(refused.value)
    with pytest.raises(ps.UnsupportedError, match="does not list") as unlisted:
        ps.open(f"{nginx.endpoint}/strong/*.tar")
    assert "address of each file" in str(unlisted.value)


def test_a_server_that_ignores_ranges_is_named(tmp_path: Path, nginx: Nginx) -> None:
    shutil.copy(written(tmp_path / "x.tfrecord", table()), nginx.files)
    large = tmp_path / "large.tfrecord"
    ps.write({"blob": [os.urandom(100_000) for _ in range(30)]}, large, index=False)
    shutil.copy(large, nginx.files)
    with pytest.raises(ps.UnsupportedError, match="whole object"):
        ps.open(f"{nginx.endpoint}/whole/large.tfrecord", storage_options={"allow_http": True})


def test_google_cloud_storage_is_read(tmp_path: Path, gcs: Seaweed) -> None:
    file = written(tmp_path / "x.tfrecord", table())
    with gcs.bucket() as bucket:
        gcs.client.put(f"{bucket}/a/x.tfrecord", file.read_bytes())
        options = gcs.gcs_options()
        for name in (
            f"gs://{bucket}/a/x.tfrecord",
            f"gs://{bucket}/**/*.tfrecord",
            f"gcs://{bucket}/a",
        ):
            assert ps.open(name, storage_options=options).to_table() == ps.open(file).to_table()


def test_odd_keys_are_read(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    body = written(tmp_path / "x.tfrecord", table(0, 3)).read_bytes()
    for name in (
        "ü.tfrecord",
        "a b.tfrecord",
        "%20.tfrecord",
        "a#b.tfrecord",
        "a?b.tfrecord",
        "a+b.tfrecord",
        "a&b=c.tfrecord",
    ):
        seaweed.client.put(f"{prefix}/odd/{name}", body)
        assert len(ps.open(f"s3://{prefix}/odd/{name}", storage_options=options)) == 3, name
    assert len(ps.open(f"s3://{prefix}/odd/*.tfrecord", storage_options=options)) == 21


@pytest.mark.parametrize("name", FORMATS.values(), ids=FORMATS)
def test_what_is_written_to_a_store_is_the_file(
    name: str, tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    file = written(tmp_path / name, table())
    url = f"s3://{prefix}/written/{name}"
    data = ps.open(file).to_table()
    ps.write(data, url, storage_options=options)
    assert ps.open(url, storage_options=options).to_table() == data
    with pytest.raises(FileExistsError):
        ps.write(data, url, storage_options=options)
    ps.write(data.slice(0, 10), url, storage_options=options, overwrite=True)
    assert len(ps.open(url, storage_options=options)) == 10


def test_keys_that_no_client_reaches_are_refused_by_name(
    seaweed: Seaweed, prefix: str, options: dict[str, str], nginx: Nginx
) -> None:
    for name in (f"s3://{prefix}/a//b.tfrecord", f"s3://{prefix}/../b.tfrecord"):
        with pytest.raises(ps.UnsupportedError) as refused:
            ps.open(name, storage_options=options)
        assert refused.value.file == name
    with pytest.raises(ps.UnsupportedError, match="web server"):
        ps.open(f"{nginx.endpoint}/strong/a%23b.tfrecord", storage_options={"allow_http": True})


def test_bytes_ahead_and_blocks_are_free_again(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    data = {"blob": [os.urandom(400_000) for _ in range(100)]}
    ps.write(data, tmp_path / "x.tfrecord", index=False)
    for number in range(3):
        put(seaweed, f"{prefix}/large-{number}.tfrecord", tmp_path / "x.tfrecord")
    ds = ps.open(f"s3://{prefix}/large-*.tfrecord", storage_options=options)
    batches = ds.scan()
    for _ in range(3):
        next(batches)
    del batches
    assert ds.to_table().num_rows == 300
    assert ds.to_table().num_rows == 300
    ds.files.storage.begin(ds.paths, 8 << 20)
    del ds
    gc.collect()
    assert AHEAD.used == 0


def test_one_column_of_many_reads_its_bytes_only(
    tmp_path: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    wide = pa.table({f"c{n}": np.random.default_rng(n).random(100_000) for n in range(30)})
    ps.write(wide, tmp_path / "wide.parquet")
    url = put(seaweed, f"{prefix}/wide.parquet", tmp_path / "wide.parquet")
    ds = ps.open(url, storage_options=options)
    assert ds.to_table(columns=["c7"])["c7"].to_pylist() == wide["c7"].to_pylist()
    storage = ds.files.storage
    assert isinstance(storage, ObjectStorage)
    store, _ = storage.store(url)
    assert store.stats()["bytes"] < 3 << 20


OTHERS = {
    "arrayrecord": ("array_record/peer-made/ar_default_zstd.array_record",),
    "mds": tuple(
        f"mds/streaming/naive_MDSdataset/26/{n}" for n in ("shard.00000.mds", "index.json")
    ),
}


@pytest.mark.parametrize("names", OTHERS.values(), ids=OTHERS)
def test_files_of_other_programs_are_read(
    names: tuple[str, ...], corpus: Path, seaweed: Seaweed, prefix: str, options: dict[str, str]
) -> None:
    for name in names:
        put(seaweed, f"{prefix}/others/{Path(name).name}", corpus / name)
    here = ps.open(corpus / names[0])
    there = ps.open(f"s3://{prefix}/others/{Path(names[0]).name}", storage_options=options)
    assert there.to_table() == here.to_table()
    assert there.take([len(here) - 1, 0]) == here.take([len(here) - 1, 0])
    assert len(ps.open(f"s3://{prefix}/others/", storage_options=options)) == len(here)
