"""The store of the core against servers that lie, stall and break off."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock._core import ObjectState, RemoteStore, StoreError
from remote.liar import (
    DATA,
    DATE,
    TAG,
    Answer,
    Request,
    Serve,
    Server,
    endless_redirect,
    fetch,
    half_then_reset,
    half_then_silence,
    kind,
    longer,
    part,
    replaced,
    reset,
    s3,
    send,
    shifted,
    short,
    silence,
    status,
    whole,
)


def untagged(request: Request, connection: socket.socket) -> None:
    part(request, connection, tag=None)


PASSING: dict[str, Answer] = {
    "reset before the answer": reset,
    "reset in mid-body": half_then_reset,
    "silence in mid-body": half_then_silence,
    "silence": silence,
    "500": status("500 Oh"),
    "503": status("503 Slow Down"),
    "429": status("429 Too Many Requests"),
    "408": status("408 Request Timeout"),
    "short body": short,
    "long body": longer,
    "another range": shifted,
    "200 for a range": whole,
    "no range named": status("206 Partial Content", ETag=TAG),
    "no ETag": untagged,
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_changes_no_byte(serve: Serve, fault: str) -> None:
    server = serve(PASSING[fault])
    store = RemoteStore(server.url, {}, stall_s=0.5)
    ranges = [(1000, 50_000), (200_000, 100), (0, 10), (49_000, 5000)]
    got = bytes(fetch(store, *ranges).wait())
    assert got == b"".join(DATA[start : start + length] for start, length in ranges)
    assert store.stats()["retries"] == 1


QUICK = sorted(fault for fault in PASSING if "silence" not in fault and "reset" not in fault)


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from(QUICK), max_size=4),
    st.lists(
        st.integers(0, len(DATA)).flatmap(
            lambda start: st.tuples(st.just(start), st.integers(0, min(len(DATA) - start, 400_000)))
        ),
        max_size=8,
    ),
)
def test_no_faults_in_any_order_change_a_byte(
    faults: list[str], ranges: list[tuple[int, int]]
) -> None:
    server = Server([PASSING[fault] for fault in faults])
    try:
        got = bytes(fetch(RemoteStore(server.url, {}), *ranges).wait())
    finally:
        server.close()
    assert got == b"".join(DATA[start : start + length] for start, length in ranges)


# Without an ETag there is nothing yet that a first answer could contradict.
@pytest.mark.parametrize("fault", [fault for fault in PASSING if fault != "no ETag"])
def test_a_first_read_survives_faults_as_well(serve: Serve, fault: str) -> None:
    server = serve(PASSING[fault])
    store = RemoteStore(server.url, {}, stall_s=0.5)
    if fault == "200 for a range":
        server.answers.append(whole)  # to the HEAD that follows
    begun = store.first("x", 1000, 50_000)
    assert bytes(begun.wait()) == DATA[1000:51_000]
    assert (begun.state.size, begun.state.etag) == (len(DATA), TAG)


LASTING: dict[str, tuple[Answer, str]] = {
    "another range": (shifted, "other"),
    "200 for a range": (whole, "unsupported"),
    "no ETag": (PASSING["no ETag"], "other"),
    "403": (status("403 Forbidden"), "denied"),
    "404": (status("404 Not Found"), "missing"),
    "412": (status("412 Precondition Failed"), "changed"),
    "another ETag": (replaced, "changed"),
    "redirects in a circle": (endless_redirect, "other"),
    "503": (status("503 Slow Down"), "deadline"),
    "silence": (silence, "deadline"),
    "reset": (reset, "deadline"),
}


@pytest.mark.parametrize("fault", LASTING)
def test_a_fault_that_stays_is_an_error_before_the_deadline(serve: Serve, fault: str) -> None:
    answer, expected = LASTING[fault]
    store = RemoteStore(serve(always=answer).url, {}, stall_s=0.5, deadline_s=3)
    before = time.monotonic()
    with pytest.raises(StoreError) as error:
        fetch(store, (100, 1000)).wait()
    assert time.monotonic() - before < 4
    assert kind(error) == expected
    _, message, key, start, end, tries, seconds = error.value.args
    assert (key, start, end) == ("x", 100, 1100)
    assert message
    assert tries >= 1
    assert seconds < 4


def test_a_broken_body_goes_on_at_the_byte_reached(serve: Serve) -> None:
    server = serve(half_then_reset)
    assert bytes(fetch(RemoteStore(server.url, {}), (0, 100_000)).wait()) == DATA[:100_000]
    assert [request.range for request in server.seen] == [(0, 100_000), (50_000, 100_000)]


def test_every_request_says_which_state_it_wants(serve: Serve) -> None:
    server = serve(half_then_reset)
    fetch(RemoteStore(server.url, {}), (0, 100_000), (1 << 20, 5)).wait()
    assert len(server.seen) == 3
    assert {request.headers["if-match"] for request in server.seen} == {TAG}


def test_without_a_strong_etag_the_date_is_sent_and_the_tag_compared(serve: Serve) -> None:
    def weak(request: Request, connection: socket.socket) -> None:
        part(request, connection, tag="W/" + TAG)

    server = serve(weak, weak, replaced)
    store = RemoteStore(server.url, {})
    begun = store.first("x", 0, 10)
    begun.wait()
    assert bytes(fetch(store, (5, 5), state=begun.state).wait()) == DATA[5:10]
    assert "if-match" not in server.seen[1].headers
    assert server.seen[1].headers["if-unmodified-since"] == DATE
    with pytest.raises(StoreError) as error:
        fetch(store, (5, 5), state=begun.state).wait()
    assert kind(error) == "changed"


def test_an_object_of_another_size_is_another_object(serve: Serve) -> None:
    state = ObjectState(len(DATA) + 1, None, None, None)
    with pytest.raises(StoreError) as error:
        fetch(RemoteStore(serve().url, {}), (0, 10), state=state).wait()
    assert kind(error) == "changed"


def test_a_small_object_may_come_whole(serve: Serve) -> None:
    server = serve(always=whole)
    store = RemoteStore(server.url, {})
    assert bytes(store.first("x", 0, 4 << 20).wait()) == DATA
    assert bytes(store.first("x", -4 << 20, 4 << 20).wait()) == DATA
    assert bytes(fetch(store, (0, len(DATA))).wait()) == DATA
    assert len(server.seen) == 3


def test_the_last_bytes_need_no_size(serve: Serve) -> None:
    server = serve()
    assert bytes(RemoteStore(server.url, {}).first("x", -1, 1000).wait()) == DATA[-1000:]
    assert [request.method for request in server.seen] == ["GET"]


def test_an_empty_object_is_read_as_empty(serve: Serve) -> None:
    def empty(request: Request, connection: socket.socket) -> None:
        line = "200 OK" if request.method == "HEAD" else "416 Range Not Satisfiable"
        send(connection, line, {"Content-Length": "0", "ETag": TAG, "Last-Modified": DATE})

    begun = RemoteStore(serve(always=empty).url, {}).first("x", 0, 1000)
    assert len(begun.wait()) == 0
    assert begun.state.size == 0


def test_neighbouring_ranges_are_one_request(serve: Serve) -> None:
    server = serve()
    store = RemoteStore(server.url, {})
    ranges = [(k * 60_000, 1000) for k in range(20)]
    got = bytes(fetch(store, *ranges).wait())
    assert got == b"".join(DATA[start : start + length] for start, length in ranges)
    assert [request.range for request in server.seen] == [(0, 1_141_000)]
    assert store.stats()["requests"] == 1


def test_no_ranges_need_no_request(serve: Serve) -> None:
    server = serve()
    assert len(fetch(RemoteStore(server.url, {})).wait()) == 0
    assert bytes(fetch(RemoteStore(server.url, {}), (5, 0)).wait()) == b""
    assert not server.seen


def test_ranges_beyond_the_object_are_refused(serve: Serve) -> None:
    with pytest.raises(ValueError, match="beyond the object"):
        fetch(RemoteStore(serve().url, {}), (len(DATA), 1))


def test_fetched_bytes_that_nobody_takes_hold_up_others_but_not_who_waits(serve: Serve) -> None:
    server = serve()
    store = RemoteStore(server.url, {}, in_flight_bytes=1 << 20)
    begun = [fetch(store, (k << 20, 1 << 20)) for k in range(3)]
    time.sleep(0.5)
    assert [one.ready() for one in begun] == [True, False, False]
    assert bytes(begun[2].wait()) == DATA[2 << 20 :]
    assert not begun[1].ready()
    begun[0].wait()
    assert bytes(begun[1].wait()) == DATA[1 << 20 : 2 << 20]


def test_a_fetch_that_is_dropped_makes_room(serve: Serve) -> None:
    store = RemoteStore(serve().url, {}, in_flight_bytes=1 << 20)
    first = fetch(store, (0, 1 << 20))
    second = fetch(store, (1 << 20, 1 << 20))
    time.sleep(0.3)
    assert (first.ready(), second.ready()) == (True, False)
    del first
    gc.collect()
    time.sleep(0.3)
    assert second.ready()


def test_waiting_twice_gives_the_same_bytes(serve: Serve) -> None:
    one = fetch(RemoteStore(serve().url, {}), (3, 9))
    assert bytes(one.wait()) == bytes(one.wait()) == DATA[3:12]


@pytest.mark.parametrize("work", ["fetch", "first", "head", "put"])
def test_a_signal_ends_the_waiting_at_once(serve: Serve, work: str) -> None:
    store = RemoteStore(serve(always=silence).url, {})
    works: dict[str, Callable[[], object]] = {
        "fetch": lambda: fetch(store, (0, 10)).wait(),
        "first": lambda: store.first("x", 0, 10).wait(),
        "head": lambda: store.head("x"),
        "put": lambda: store.put("x", b"1"),
    }

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        before = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            works[work]()
        assert time.monotonic() - before < 0.8
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_children_of_forks_read_by_themselves(serve: Serve) -> None:
    server = serve(*[half_then_silence] * 3)
    store = RemoteStore(server.url, {}, stall_s=5)
    pending = [fetch(store, (k * 1000, 1000)) for k in range(3)]
    time.sleep(0.2)
    children: list[int] = []
    for _ in range(5):
        if (child := os.fork()) == 0:
            signal.alarm(4)  # a hanging child must not hang the test
            right = bytes(pending[1].wait()) == DATA[1000:2000]
            right &= bytes(fetch(store, (7, 7)).wait()) == DATA[7:14]
            os._exit(0 if right else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5
    assert [bytes(one.wait()) for one in pending] == [DATA[k : k + 1000] for k in (0, 1000, 2000)]


def test_a_server_that_slows_us_down_gets_fewer_requests_at_once(serve: Serve) -> None:
    active, most, lock = [0], [0], threading.Lock()

    def slow(request: Request, connection: socket.socket) -> None:
        with lock:
            active[0] += 1
            most[0] = max(most[0], active[0])
        time.sleep(0.05)
        with lock:
            active[0] -= 1
        part(request, connection)

    def most_at_once(store: RemoteStore) -> int:
        most[0] = 0
        ranges = [(k * 300_000, 10) for k in range(10)] * 12
        fetches = [fetch(store, one) for one in ranges]
        assert [bytes(one.wait()) for one in fetches] == [DATA[s : s + n] for s, n in ranges]
        return most[0]

    assert most_at_once(RemoteStore(serve(always=slow).url, {})) == 64
    slowed = RemoteStore(serve(status("503 Slow Down"), always=slow).url, {})
    fetch(slowed, (0, 1)).wait()
    assert most_at_once(slowed) <= 40  # 32, and one more each second


def test_what_was_created_without_an_answer_is_not_taken_for_another_object(serve: Serve) -> None:
    stored = b"mine"

    def serve_stored(request: Request, connection: socket.socket) -> None:
        headers = {"ETag": TAG, "Last-Modified": DATE, "Content-Length": str(len(stored))}
        if request.method == "HEAD":
            send(connection, "200 OK", headers)
        elif request.method == "GET":
            range_ = {"Content-Range": f"bytes 0-{len(stored) - 1}/{len(stored)}"}
            send(connection, "206 Partial Content", headers | range_, stored)
        else:
            send(connection, "412 Precondition Failed", {"Content-Length": "0"})

    store = RemoteStore("s3://bucket", s3(serve(reset, always=serve_stored)))
    assert store.put("x", b"mine", create=True).size == 4
    for data, answers in ((b"mine", []), (b"yours", [reset]), (b"your", [reset])):
        store = RemoteStore("s3://bucket", s3(serve(*answers, always=serve_stored)))
        with pytest.raises(StoreError) as error:
            store.put("x", data, create=True)
        assert kind(error) == "exists"


def test_states_are_values() -> None:
    state = ObjectState(5, '"a"', None, 7)
    assert pickle.loads(pickle.dumps(state)) == state
    assert len({state, ObjectState(5, '"a"', None, 7), ObjectState(5, '"b"')}) == 2
    assert repr(state) == 'ObjectState(5, "\\"a\\"", None, 7)'
    with pytest.raises(AttributeError):
        state.size = 6  # pyright: ignore[reportAttributeAccessIssue]
