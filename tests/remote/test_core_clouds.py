"""The store of the core with servers of S3, GCS, Azure and HTTP that run here."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from penstock._core import Fetch, ObjectState, RemoteStore, StoreError
from remote.servers import faults
from remote.servers.azure import Azure
from remote.servers.fault_proxy import FaultProxy
from remote.servers.link import link
from remote.servers.nginx import SIGNATURE, Nginx
from remote.servers.s3 import S3
from remote.servers.seaweed import Seaweed

DATA = np.random.default_rng(8).bytes(12 << 20)


@dataclass
class Cloud:
    """A store, and how to make another one that reaches it by another address."""

    store: RemoteStore
    by: Callable[[str], RemoteStore]
    endpoint: str
    keys: S3 | None


@pytest.fixture(params=["s3", "gcs", "azure"])
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    with ExitStack() as stack:
        if request.param == "azure":
            azure: Azure = request.getfixturevalue("azure")
            url, options = f"az://{stack.enter_context(azure.container())}", azure.options
            endpoint, keys = azure.endpoint, None
        else:
            server: Seaweed = request.getfixturevalue("seaweed" if request.param == "s3" else "gcs")
            bucket, endpoint = stack.enter_context(server.bucket()), server.endpoint
            keys = server.client
            url = f"{'s3' if request.param == 's3' else 'gs'}://{bucket}"
            options = server.options if request.param == "s3" else server.gcs_options

        def by(address: str) -> RemoteStore:
            return RemoteStore(url, options(address), stall_s=2, deadline_s=20)

        yield Cloud(by(endpoint), by, endpoint, keys)


def fetch(store: RemoteStore, key: str, state: ObjectState, *ranges: tuple[int, int]) -> Fetch:
    starts = pa.array([start for start, _ in ranges], pa.uint64())
    return store.fetch(key, state, starts, pa.array([n for _, n in ranges], pa.uint64()))


def all_of(store: RemoteStore, key: str) -> bytes:
    state = store.head(key)
    return bytes(fetch(store, key, state, (0, state.size)).wait())


def kind_of(work: Callable[[], object]) -> str:
    with pytest.raises(StoreError) as error:
        work()
    return error.value.args[0]


def test_what_was_put_is_read_and_belongs_to_one_state(cloud: Cloud) -> None:
    store = cloud.store
    state = store.put("folder/ü %20+&=~.bin", DATA)
    (listed,) = store.list("folder/")
    begun = store.first("folder/ü %20+&=~.bin", 100, 1000)
    assert bytes(begun.wait()) == DATA[100:1100]
    last = store.first("folder/ü %20+&=~.bin", -1, 1000)
    assert bytes(last.wait()) == DATA[-1000:]
    head = store.head("folder/ü %20+&=~.bin")
    assert begun.state == last.state == head
    assert listed[0] == "folder/ü %20+&=~.bin"
    assert {(s.size, s.etag) for s in (state, head, listed[1])} == {(len(DATA), head.etag)}
    chosen = random.Random(3)
    ranges = [(chosen.randrange(len(DATA) - 9000), chosen.randrange(9000)) for _ in range(100)]
    got = bytes(fetch(store, listed[0], listed[1], *ranges).wait())
    assert got == b"".join(DATA[start : start + length] for start, length in ranges)


@pytest.mark.parametrize("data", [b"", b"x", bytearray(b"abc"), memoryview(b"abcd")[1:]])
def test_small_objects(cloud: Cloud, data: bytes) -> None:
    store = cloud.store
    store.put("small", data)
    begun = store.first("small", 0, 1000)
    assert (bytes(begun.wait()), begun.state.size) == (bytes(data), len(data))
    assert bytes(store.first("small", -1, 1000).wait()) == bytes(data)
    assert len(store.first("small", 5, 1000).wait()) == 0


def test_an_object_that_is_replaced_is_refused(cloud: Cloud) -> None:
    store = cloud.store
    old = store.put("x", DATA)
    assert bytes(fetch(store, "x", old, (0, 10)).wait()) == DATA[:10]
    store.put("x", DATA[::-1])
    assert kind_of(lambda: fetch(store, "x", old, (0, 10)).wait()) in {"changed", "missing"}
    store.delete("x")
    assert kind_of(lambda: fetch(store, "x", old, (0, 10)).wait()) == "missing"
    assert kind_of(lambda: store.head("x")) == "missing"
    store.delete("x")


def test_created_once(cloud: Cloud) -> None:
    cloud.store.put("once", b"first", create=True)
    assert kind_of(lambda: cloud.store.put("once", b"second", create=True)) == "exists"
    assert all_of(cloud.store, "once") == b"first"


def test_parts_become_an_object_when_they_are_completed(cloud: Cloud) -> None:
    store, size = cloud.store, 5 << 20
    upload = store.upload("large")
    for number in (2, 0, 1):  # in any order
        upload.part(number, DATA[number * size : (number + 1) * size])
    assert kind_of(lambda: store.head("large")) == "missing"
    state = upload.complete()
    assert (state.size, state.etag) == (len(DATA), store.head("large").etag)
    assert all_of(store, "large") == DATA


def test_an_upload_can_be_given_up_even_by_its_id(cloud: Cloud) -> None:
    upload = cloud.store.upload("never")
    upload.part(0, b"data")
    cloud.store.upload("never", upload.id).abort()
    upload.abort()
    assert kind_of(lambda: cloud.store.head("never")) == "missing"


def test_a_part_that_is_missing_is_named(cloud: Cloud) -> None:
    upload = cloud.store.upload("holes")
    upload.part(1, b"data")
    with pytest.raises(StoreError, match="part 0 of the upload was not sent"):
        upload.complete()
    upload.abort()


def test_listings_have_all_pages_and_one_level_if_asked(cloud: Cloud) -> None:
    store = cloud.store
    keys = sorted(f"p{n % 7}/{n:02d}" for n in range(40))
    for key in keys:
        store.put(key, key.encode())
    assert [key for key, _ in store.list("")] == keys
    assert [key for key, _ in store.list("p3/1")] == [k for k in keys if k.startswith("p3/1")]
    assert store.list("none") == []
    objects, folders = store.list_folder("")
    assert (objects, folders) == ([], [f"p{n}/" for n in range(7)])
    objects, folders = store.list_folder("p3/")
    assert ([key for key, _ in objects], folders) == ([k for k in keys if k[:3] == "p3/"], [])


def test_random_faults_change_no_byte(cloud: Cloud) -> None:
    state = cloud.store.put("x", DATA)
    chosen = random.Random(5)
    with FaultProxy(cloud.endpoint, keys=cloud.keys) as proxy:
        store = cloud.by(proxy.endpoint)
        passing = [
            faults.reset(), faults.close_early(), faults.short_body(), faults.long_body(),
            faults.shifted_range(), faults.unavailable(), faults.too_many(), faults.timed_out(),
            faults.lost_answer(), faults.refused(), faults.stall(seconds=3),
        ]  # fmt: skip
        if cloud.keys:  # the proxy asks for the whole, and signs that
            passing.append(faults.whole_object())
        for fault in passing:
            proxy.heal()
            proxy.add(fault, method="GET", nth=(1, 3))
            ranges = [(chosen.randrange(11 << 20), chosen.randrange(1 << 20)) for _ in range(8)]
            got = bytes(fetch(store, "x", state, *ranges).wait())
            assert got == b"".join(DATA[s : s + n] for s, n in ranges), fault.name


def test_wrong_keys_are_refused_without_being_shown(seaweed: Seaweed, bucket: str) -> None:
    secret = "sEcReT0123456789"
    options = seaweed.options() | {"aws_secret_access_key": secret}
    store = RemoteStore(f"s3://{bucket}", options)
    for work in (lambda: store.head("x"), lambda: store.list(""), lambda: store.put("x", b"")):
        with pytest.raises(StoreError) as error:
            work()
        assert error.value.args[0] == "denied"
        assert secret not in str(error.value)


def test_a_store_that_ignores_conditions_is_found_out(rclone: Seaweed) -> None:
    with rclone.bucket() as bucket:
        store = RemoteStore(f"s3://{bucket}", rclone.options())
        store.put("x", DATA)
        old = store.head("x")
        time.sleep(1)  # its ETags may be as fine as the clock
        store.put("x", DATA[::-1])
        assert kind_of(lambda: fetch(store, "x", old, (0, 10)).wait()) == "changed"


@pytest.mark.parametrize("place", ["strong", "weak", "untagged", "undated", "moved"])
def test_files_of_a_web_server(nginx: Nginx, place: str) -> None:
    (nginx.files / "x.bin").write_bytes(DATA)
    store = RemoteStore(nginx.endpoint, {})
    begun = store.first(f"{place}/x.bin", 0, 100)
    assert bytes(begun.wait()) == DATA[:100]
    got = fetch(store, f"{place}/x.bin", begun.state, (5, 9 << 20), (0, 3))
    assert bytes(got.wait()) == DATA[5 : 5 + (9 << 20)] + DATA[:3]
    assert (begun.state.etag is None) == (place in {"untagged", "undated"})
    assert (begun.state.modified_ms is None) == (place == "undated")


@pytest.mark.parametrize("place", ["strong", "weak", "untagged", "undated"])
def test_files_that_are_replaced(nginx: Nginx, place: str) -> None:
    path = nginx.files / f"{place}.bin"
    path.write_bytes(DATA)
    store = RemoteStore(nginx.endpoint, {})
    state = store.head(f"{place}/{place}.bin")
    time.sleep(1.1)  # dates have seconds
    path.write_bytes(DATA[::-1] if place != "undated" else DATA[1:])
    work = fetch(store, f"{place}/{place}.bin", state, (5, 1000))
    assert kind_of(work.wait) == "changed"


def test_a_server_without_ranges_gives_whole_files_or_says_so(nginx: Nginx) -> None:
    (nginx.files / "small.bin").write_bytes(b"0123456789")
    store = RemoteStore(nginx.endpoint, {})
    assert bytes(store.first("whole/small.bin", 0, 100).wait()) == b"0123456789"
    work = store.first("whole/small.bin", 0, 5)
    assert kind_of(work.wait) == "unsupported"


def test_presigned_addresses(nginx: Nginx) -> None:
    (nginx.files / "x.bin").write_bytes(DATA)
    store = RemoteStore(f"{nginx.endpoint}?sig={SIGNATURE}", {})
    assert bytes(store.first("signed/x.bin", 7, 7).wait()) == DATA[7:14]
    assert SIGNATURE not in repr(store)
    wrong = RemoteStore(f"{nginx.endpoint}?sig=wrong", {})
    with pytest.raises(StoreError) as error:
        wrong.head("signed/x.bin")
    assert error.value.args[0] == "denied"
    assert "wrong" not in str(error.value)


def test_without_certificates_http_works(nginx: Nginx, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    (nginx.files / "x.bin").write_bytes(DATA)
    store = RemoteStore(nginx.endpoint, {})
    assert bytes(store.first("strong/x.bin", 0, 9).wait()) == DATA[:9]


def test_tls_is_checked(nginx_tls: Nginx, monkeypatch: pytest.MonkeyPatch) -> None:
    (nginx_tls.files / "x.bin").write_bytes(DATA)
    with pytest.raises(StoreError, match="certificate is not trusted"):
        RemoteStore(nginx_tls.endpoint, {}, deadline_s=3).head("strong/x.bin")
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    with pytest.raises(StoreError, match="certificate is not trusted"):
        RemoteStore(nginx_tls.endpoint, {}, deadline_s=3).head("strong/x.bin")
    monkeypatch.setenv("SSL_CERT_FILE", str(nginx_tls.authority))
    store = RemoteStore(nginx_tls.endpoint, {})
    assert bytes(store.first("strong/x.bin", 0, 9).wait()) == DATA[:9]


def test_256_ranges_over_a_link_take_little_longer_than_their_bytes(nginx: Nginx) -> None:
    """The limit is a round trip of 20 ms and 205 ms for the bytes; loaded machines take longer."""
    (nginx.files / "far.bin").write_bytes(np.random.default_rng(1).bytes(128 << 20))
    with link(nginx.endpoint) as far:
        store = RemoteStore(far.endpoint, {})
        state = store.head("strong/far.bin")
        chosen = random.Random(6)
        times: list[float] = []
        for _ in range(4):
            starts = [chosen.randrange(127 << 20) for _ in range(256)]
            before = time.monotonic()
            fetch(store, "strong/far.bin", state, *((start, 100_000) for start in starts)).wait()
            times.append(time.monotonic() - before)
    assert min(times) < 2


def test_faults_while_writing_lose_and_double_nothing(cloud: Cloud) -> None:
    with FaultProxy(cloud.endpoint, keys=cloud.keys) as proxy:
        store = cloud.by(proxy.endpoint)
        for number, fault in enumerate([
            faults.refused(), faults.lost_answer(), faults.unavailable(), faults.too_many(),
            faults.cut_upload(), faults.timed_out(),
        ]):  # fmt: skip
            proxy.heal()
            for method in ("PUT", "POST"):
                proxy.add(fault, method=method, nth=(1, 3))
            store.put(f"once-{number}", DATA[:100], create=True)
            upload = store.upload(f"parts-{number}")
            for part in range(2):
                upload.part(part, DATA[part * (6 << 20) : (part + 1) * (6 << 20)])
            state = upload.complete()
            proxy.heal()
            assert all_of(store, f"once-{number}") == DATA[:100], fault.name
            assert state.etag == store.head(f"parts-{number}").etag, fault.name
            assert all_of(store, f"parts-{number}") == DATA, fault.name
