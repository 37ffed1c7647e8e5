"""The proxy of faults passes everything on unchanged, does what its rules say, and counts."""

from __future__ import annotations

import http.client
import os
import random
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from remote.servers import faults
from remote.servers.fault_proxy import FaultProxy
from remote.servers.faults import Fault
from remote.servers.nginx import Nginx
from remote.servers.s3 import S3, Answer, request
from remote.servers.seaweed import Seaweed

BODY = random.Random(1).randbytes(100_000)
RANGE = {"Range": "bytes=1000-1999"}
PART = BODY[1000:2000]


@pytest.fixture
def proxy(nginx: Nginx) -> Generator[FaultProxy]:
    (nginx.files / "body").write_bytes(BODY)
    with FaultProxy(nginx.endpoint) as proxy:
        yield proxy


def ask(proxy: FaultProxy, headers: dict[str, str] | None = None, timeout: float = 30) -> Answer:
    return request("GET", f"{proxy.endpoint}/strong/body", headers, timeout=timeout)


def through(proxy: FaultProxy, seaweed: Seaweed) -> S3:
    return S3(proxy.endpoint, seaweed.key_id, seaweed.secret)


def test_answers_are_unchanged(proxy: FaultProxy, nginx: Nginx) -> None:
    for headers in (
        {},
        RANGE,
        {"Range": "bytes=-5"},
        {"If-Match": '"x"'},
        {"Range": "bytes=9999999-"},
    ):
        direct = request("GET", f"{nginx.endpoint}/strong/body", headers)
        found = ask(proxy, headers)
        assert (found.status, found.body) == (direct.status, direct.body)
        assert found.headers | {"date": ""} == direct.headers | {"date": ""}


def test_signatures_go_through(seaweed: Seaweed, bucket: str) -> None:
    with FaultProxy(seaweed.endpoint) as proxy:
        client = through(proxy, seaweed)
        client.put(f"{bucket}/a/ü k+%", BODY)
        assert client.get(f"{bucket}/a/ü k+%", range="bytes=1000-1999") == PART
        assert client.keys(bucket) == ["a/ü k+%"]
        assert request("GET", client.presigned(f"{bucket}/a/ü k+%")).body == BODY
        assert S3(proxy.endpoint, seaweed.key_id, "x").call("GET", bucket).status == 403
        assert proxy.requests("PUT")[0].received == len(BODY)


@pytest.mark.parametrize("fault", [faults.reset(), faults.close_early()])
def test_bodies_that_break_off(proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(fault, times=1)
    with pytest.raises((ConnectionResetError, http.client.IncompleteRead)) as caught:
        ask(proxy)
    assert isinstance(caught.value, ConnectionResetError) is (fault.name == "reset")
    assert ask(proxy).body == BODY
    assert [one.fault for one in proxy.requests()] == [fault.name, None]


@pytest.mark.parametrize("fault", [faults.stall(), faults.silence(), faults.slow(faults.FOR_EVER)])
def test_answers_that_do_not_come(proxy: FaultProxy, fault: Fault) -> None:
    proxy.add(fault)
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        ask(proxy, timeout=0.3)
    assert time.monotonic() - begun >= 0.3


def test_a_late_answer_is_right(proxy: FaultProxy) -> None:
    proxy.add(faults.slow(0.2))
    begun = time.monotonic()
    assert ask(proxy).body == BODY
    assert time.monotonic() - begun >= 0.2


@pytest.mark.parametrize(
    ("fault", "status", "code", "after"),
    [
        (faults.unavailable(2), 503, b"SlowDown", "2"),
        (faults.too_many(), 429, b"TooManyRequests", "0"),
        (faults.timed_out(), 408, b"RequestTimeout", None),
        (faults.expired(), 403, b"ExpiredToken", None),
        (faults.redirect_loop(), 302, b"", None),
    ],
)
def test_errors_in_place_of_answers(
    proxy: FaultProxy, fault: Fault, status: int, code: bytes, after: str | None
) -> None:
    proxy.add(fault, times=2)
    for _ in range(2):
        answer = ask(proxy)
        assert answer.status == status
        assert code in answer.body
        assert answer.headers.get("retry-after") == after
    assert ask(proxy).status == 200


@pytest.mark.parametrize(
    ("fault", "status", "expected", "content_range"),
    [
        (faults.short_body(), 206, PART[:500], "bytes 1000-1999/100000"),
        (faults.long_body(7), 206, PART + bytes(7), "bytes 1000-1999/100000"),
        (faults.shifted_range(), 206, PART, "bytes 1001-2000/100000"),
        (faults.whole_object(), 200, BODY, None),
        (faults.damaged(0), 206, bytes([PART[0] ^ 1]) + PART[1:], "bytes 1000-1999/100000"),
    ],
)
def test_lies_about_a_range(
    proxy: FaultProxy, fault: Fault, status: int, expected: bytes, content_range: str | None
) -> None:
    proxy.add(fault)
    answer = ask(proxy, RANGE)
    assert (answer.status, answer.body) == (status, expected)
    assert answer.headers.get("content-range") == content_range
    assert answer.headers["content-length"] == str(len(expected))


@pytest.mark.parametrize("tag", ['"another"', None])
def test_other_tags(proxy: FaultProxy, tag: str | None) -> None:
    proxy.add(faults.other_tag(tag))
    assert ask(proxy, RANGE).headers.get("etag") == tag
    head = request("HEAD", f"{proxy.endpoint}/strong/body").headers
    assert (head.get("etag"), head["content-length"]) == (tag, str(len(BODY)))


def test_a_signed_range_can_be_answered_with_all(seaweed: Seaweed, bucket: str) -> None:
    with FaultProxy(seaweed.endpoint, keys=seaweed.client) as proxy:
        client = through(proxy, seaweed)
        client.put(f"{bucket}/k", BODY)
        proxy.add(faults.whole_object(), ranged=True)
        answer = client.call("GET", f"{bucket}/k", headers={"range": "bytes=1000-1999"})
        assert (answer.status, answer.body) == (200, BODY)


def test_an_object_replaced_between_two_ranges(seaweed: Seaweed, bucket: str) -> None:
    with FaultProxy(seaweed.endpoint) as proxy:
        client, path = through(proxy, seaweed), f"{bucket}/k"
        tag = seaweed.client.put(path, BODY)
        proxy.add(
            faults.call(lambda _: seaweed.client.put(path, BODY[::-1])),
            key="/k$",
            ranged=True,
            nth=[2],
        )
        asked = {"range": "bytes=0-9", "if-match": tag}
        found = [client.call("GET", path, headers=asked).status for _ in range(3)]
        assert found == [206, 412, 412]
        assert client.get(path, range="bytes=0-9") == BODY[::-1][:10]


def test_a_listing_can_be_truncated(seaweed: Seaweed, bucket: str) -> None:
    with FaultProxy(seaweed.endpoint) as proxy:
        client = through(proxy, seaweed)
        client.put(f"{bucket}/k", b"")
        whole = client.call("GET", bucket, query={"list-type": "2"}).body
        proxy.add(faults.short_body(), query="list-type")
        cut = client.call("GET", bucket, query={"list-type": "2"})
        assert (cut.status, cut.body) == (200, whole[: len(whole) // 2])


def test_an_answer_is_lost_after_the_work_is_done(seaweed: Seaweed, bucket: str) -> None:
    with FaultProxy(seaweed.endpoint) as proxy:
        proxy.add(faults.lost_answer(), method="PUT", times=1)
        with pytest.raises(OSError):
            through(proxy, seaweed).put(f"{bucket}/k", BODY)
        assert seaweed.client.get(f"{bucket}/k") == BODY


@pytest.mark.parametrize("fault", [faults.refused(), faults.cut_upload()])
def test_an_upload_that_breaks_off_leaves_nothing(
    seaweed: Seaweed, bucket: str, fault: Fault
) -> None:
    with FaultProxy(seaweed.endpoint) as proxy:
        proxy.add(fault, method="PUT", times=1)
        with pytest.raises(OSError):
            through(proxy, seaweed).put(f"{bucket}/k", BODY * 50)
        assert seaweed.client.keys(bucket) == []
        through(proxy, seaweed).put(f"{bucket}/k", BODY * 50)
        assert seaweed.client.get(f"{bucket}/k") == BODY * 50


def test_rules_choose(proxy: FaultProxy) -> None:
    rule = proxy.add(faults.expired(), method="GET", key="bo.y$", ranged=True, nth={2, 4}, times=1)
    assert [ask(proxy, RANGE).status for _ in range(5)] == [206, 403, 206, 206, 206]
    assert ask(proxy).status == 200
    assert (rule.fitting, rule.fired) == (5, 1)
    proxy.heal()
    proxy.add(faults.expired(), key="other")
    assert ask(proxy, RANGE).status == 206


def test_chances_follow_the_seed_whatever_the_order(proxy: FaultProxy) -> None:
    def fates(order: Callable[[list[int]], list[int]], seed: int) -> dict[int, list[int]]:
        proxy.heal()
        proxy.add(faults.expired(), probability=0.5, seed=seed)
        asked = order([place for place in range(20) for _ in range(2)])
        found: dict[int, list[int]] = {}
        for place in asked:
            status = ask(proxy, {"Range": f"bytes={place}-{place}"}).status
            found.setdefault(place, []).append(status)
        return found

    first = fates(list, 1)
    assert first == fates(lambda order: order[::-1], 1)
    assert first != fates(list, 2)
    assert {status for pair in first.values() for status in pair} == {206, 403}


def test_requests_are_counted(proxy: FaultProxy) -> None:
    parts = urlsplit(proxy.endpoint)
    kept = http.client.HTTPConnection(str(parts.hostname), parts.port)
    for path in ("/strong/body", "/weak/body", "/strong/none"):
        kept.request("GET", path, headers=RANGE)
        kept.getresponse().read()
    kept.request("HEAD", "/strong/body?x=1")
    kept.getresponse().read()
    kept.close()
    assert proxy.count() == 4
    assert proxy.connections() == 1
    assert (proxy.count("GET"), proxy.count(key="/strong/body"), proxy.sent("/body")) == (
        3,
        2,
        2000,
    )
    assert [one.status for one in proxy.requests()] == [206, 206, 404, 200]
    first, last = proxy.requests()[0], proxy.requests()[-1]
    assert (first.range, first.query, last.range, last.query) == ((1000, 1999), "", None, "x=1")
    proxy.forget()
    assert proxy.count() == 0


def test_many_connections_at_once(proxy: FaultProxy) -> None:
    with ThreadPoolExecutor(32) as pool:
        assert all(answer.body == BODY for answer in pool.map(lambda _: ask(proxy), range(200)))
    assert proxy.count() == 200


# Python 3.12 warns of any fork beside threads; that is what is tested here.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_does_not_keep_connections_open(proxy: FaultProxy) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        begun.set()
        go_on.wait(20)

    # The reset comes after the fork, when the child has got everything that was open before.
    proxy.add(Fault("wait", before=wait, share=0.5))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, proxy, None, 5)
        begun.wait(20)
        child = os.fork()
        if not child:
            time.sleep(20)
            os._exit(0)
        try:
            go_on.set()
            with pytest.raises(ConnectionResetError):
                answer.result()
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)


def test_leaving_ends_what_hangs(nginx: Nginx) -> None:
    (nginx.files / "body").write_bytes(BODY)
    with ThreadPoolExecutor(1) as pool:
        with FaultProxy(nginx.endpoint) as proxy:
            proxy.add(faults.stall())
            answer = pool.submit(ask, proxy)
            while not proxy.sent():
                time.sleep(0.01)
        with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
            answer.result()
