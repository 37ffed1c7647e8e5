"""The store of the core against servers that lie, stall and break off."""

import gc
import os
import pickle
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest

from penstock._core import Fetch, ObjectState, RemoteStore, StoreError

DATA = np.random.default_rng(7).bytes(3 << 20)
TAG = '"one"'
DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    number: int

    @property
    def range(self) -> tuple[int, int]:
        """The first byte and the byte after the last."""
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["range"])
        assert found
        start, last = found.groups()
        if not start:
            return max(0, len(DATA) - int(last)), len(DATA)
        return int(start), min(len(DATA), int(last) + 1)


Answer = Callable[[Request, socket.socket], None]


def send(
    connection: socket.socket, status: str, headers: dict[str, str], body: bytes = b""
) -> None:
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)


def part(
    request: Request,
    connection: socket.socket,
    *,
    tag: str | None = TAG,
    body: bytes | None = None,
    length: int | None = None,
    shift: int = 0,
) -> None:
    """The right answer to a request for a range, or one with these faults."""
    start, end = request.range
    body = DATA[start:end] if body is None else body
    headers = {
        "Content-Length": str(len(body) if length is None else length),
        "Content-Range": f"bytes {start + shift}-{end - 1 + shift}/{len(DATA)}",
        "Last-Modified": DATE,
    }
    send(connection, "206 Partial Content", headers | ({"ETag": tag} if tag else {}), body)


@dataclass
class Server:
    """Answers requests one after another with what the test gives, then rightly."""

    answers: list[Answer]
    always: Answer = part
    seen: list[Request] = field(default_factory=list[Request])

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            while head := lines.readline().decode():
                method, target, _ = head.split()
                headers: dict[str, str] = {}
                while line := lines.readline().decode().strip():
                    name, value = line.split(":", 1)
                    headers[name.lower()] = value.strip()
                body = lines.read(int(headers.get("content-length", 0)))
                with self._lock:
                    request = Request(method, target, headers, body, len(self.seen))
                    self.seen.append(request)
                    answer = self.answers.pop(0) if self.answers else self.always
                try:
                    answer(request, connection)
                except OSError:
                    return

    def close(self) -> None:
        self._listener.close()


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(*answers: Answer, always: Answer = part) -> Server:
        servers.append(Server(list(answers), always))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


PINNED = ObjectState(len(DATA), TAG, None, None)


def fetch(store: RemoteStore, *ranges: tuple[int, int], state: ObjectState = PINNED) -> Fetch:
    starts = pa.array([start for start, _ in ranges], pa.uint64())
    lengths = pa.array([length for _, length in ranges], pa.uint64())
    return store.fetch("x", state, starts, lengths)


def kind(error: pytest.ExceptionInfo[StoreError]) -> str:
    return error.value.args[0]


def status(line: str, **headers: str) -> Answer:
    def answer(request: Request, connection: socket.socket) -> None:
        send(connection, line, {"Content-Length": "0"} | headers)

    return answer


def reset(request: Request, connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    raise ConnectionError  # the server closes the connection, and as it must not linger, resets it


def half_then_reset(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, body=DATA[start : (start + end) // 2], length=end - start)
    time.sleep(0.1)  # or the reset overtakes what was sent
    reset(request, connection)


def half_then_silence(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, body=DATA[start : (start + end) // 2], length=end - start)
    time.sleep(30)


def silence(request: Request, connection: socket.socket) -> None:
    time.sleep(30)


def short(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, body=DATA[start : (start + end) // 2])


def longer(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, body=b"?" * (end - start + 1))


def shifted(request: Request, connection: socket.socket) -> None:
    part(request, connection, shift=1)


def whole(request: Request, connection: socket.socket) -> None:
    headers = {"Content-Length": str(len(DATA)), "ETag": TAG, "Last-Modified": DATE}
    send(connection, "200 OK", headers, b"" if request.method == "HEAD" else DATA)


def replaced(request: Request, connection: socket.socket) -> None:
    start, end = request.range
    part(request, connection, tag='"two"', body=b"!" * (end - start))


def endless_redirect(request: Request, connection: socket.socket) -> None:
    send(connection, "302 Found", {"Content-Length": "0", "Location": request.target})


PASSING = {
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
    "no ETag": lambda request, connection: part(request, connection, tag=None),
}


@pytest.mark.parametrize("fault", PASSING)
def test_a_fault_that_passes_changes_no_byte(serve: Serve, fault: str) -> None:
    server = serve(PASSING[fault])
    store = RemoteStore(server.url, {}, stall_s=0.5)
    ranges = [(1000, 50_000), (200_000, 100), (0, 10), (49_000, 5000)]
    got = bytes(fetch(store, *ranges).wait())
    assert got == b"".join(DATA[start : start + length] for start, length in ranges)
    assert store.stats()["retries"] == 1


@pytest.mark.parametrize("fault", PASSING)
def test_a_first_read_survives_faults_as_well(serve: Serve, fault: str) -> None:
    server = serve(PASSING[fault])
    store = RemoteStore(server.url, {}, stall_s=0.5)
    if fault == "no ETag":
        pytest.skip("nothing is known yet that it could contradict")
    if fault == "200 for a range":
        server.answers.append(whole)  # to the HEAD that follows
    begun = store.first("x", 1000, 50_000)
    assert bytes(begun.wait()) == DATA[1000:51_000]
    assert (begun.state.size, begun.state.etag) == (len(DATA), TAG)


LASTING = {
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
    ranges = [(k * 100_000, 1000) for k in range(20)]
    got = bytes(fetch(store, *ranges).wait())
    assert got == b"".join(DATA[start : start + length] for start, length in ranges)
    assert [request.range for request in server.seen] == [(0, 1_901_000)]
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

    def fetch_all(server: Server) -> int:
        store = RemoteStore(server.url, {})
        starts = [(k * 300_000, 10) for k in range(10)] * 12
        most[0] = 0
        fetches = [fetch(store, one) for one in starts]
        assert [bytes(one.wait()) for one in fetches] == [DATA[s : s + n] for s, n in starts]
        return most[0]

    assert fetch_all(serve(always=slow)) == 64
    assert fetch_all(serve(*[status("503 Slow Down")] * 3, always=slow)) <= 64


SECRET = "sEcReT0123456789"  # noqa: S105


def test_the_query_of_an_address_is_sent_and_never_shown(serve: Serve) -> None:
    server = serve()
    store = RemoteStore(f"{server.url}?X-Amz-Signature={SECRET}", {}, deadline_s=1)
    assert bytes(store.first("a b/x", 0, 5).wait()) == DATA[:5]
    assert server.seen[0].target == f"/a%20b/x?X-Amz-Signature={SECRET}"
    assert SECRET not in repr(store)
    for always in (answer for answer, _ in LASTING.values()):
        server.always = always
        with pytest.raises(StoreError) as error:
            fetch(store, (0, 5)).wait()
        assert SECRET not in str(error.value) + repr(error.value)


def test_a_password_in_an_address_is_never_shown(serve: Serve) -> None:
    url = serve().url.replace("http://", f"http://user:{SECRET}@")
    assert SECRET not in repr(RemoteStore(url, {}))


def s3(server: Server, **options: str) -> dict[str, str]:
    return {
        "aws_endpoint_url": server.url,
        "aws_allow_http": "true",
        "aws_access_key_id": "name",
        "aws_secret_access_key": SECRET,
        "aws_region": "here",
    } | options


def test_an_unknown_option_is_named_without_its_value() -> None:
    with pytest.raises(ValueError, match="'?aws_secret_acess_key'?") as error:
        RemoteStore("s3://bucket", {"aws_secret_acess_key": SECRET})
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket", {"aws_allow_http": SECRET}),
        ("gs://bucket", {"google_service_account_key": SECRET}),
        ("az://box", {"azure_storage_account_key": SECRET}),
        ("az://box", {"azure_storage_account_name": "a", "azure_storage_account_key": SECRET + "-"}),
        (f"ftp://user:{SECRET}@host", {}),
        (f"s3://user:{SECRET}@", {}),
        (SECRET, {}),
    ],
)
def test_options_that_do_not_fit_are_errors_without_secrets(
    url: str, options: dict[str, str]
) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        RemoteStore(url, options)
    assert SECRET not in str(error.value)


def test_an_endpoint_without_tls_must_be_allowed(serve: Serve) -> None:
    with pytest.raises(ValueError, match="aws_allow_http=true"):
        RemoteStore("s3://bucket", s3(serve(), aws_allow_http="false"))


def test_times_must_be_positive() -> None:
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            RemoteStore("http://127.0.0.1", {}, deadline_s=seconds)


def test_nobody_there_is_said_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    before = time.monotonic()
    with pytest.raises(StoreError, match="nobody answers there") as error:
        RemoteStore(f"http://127.0.0.1:{port}", {}, deadline_s=18).head("x")
    assert kind(error) == "other"
    assert time.monotonic() - before < 6


def test_without_credentials_the_error_says_so(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    server = serve(always=status("404 Not Found"))
    options = s3(server, aws_metadata_endpoint=server.url)
    del options["aws_access_key_id"], options["aws_secret_access_key"]
    with pytest.raises(StoreError, match="no credentials") as error:
        RemoteStore("s3://bucket", options).head("x")
    assert kind(error) == "denied"


def refusal(code: str) -> Answer:
    def answer(request: Request, connection: socket.socket) -> None:
        text = f"<Error><Code>{code}</Code><Message>{SECRET}</Message></Error>".encode()
        send(connection, "403 Forbidden", {"Content-Length": str(len(text))}, text)

    return answer


def test_credentials_of_a_function_are_asked_for_again_when_refused(serve: Serve) -> None:
    asked: list[int] = []

    def credentials() -> dict[str, str]:
        asked.append(1)
        return {
            "aws_access_key_id": f"name{len(asked)}",
            "aws_secret_access_key": SECRET,
            "aws_session_token": "token",
        }

    server = serve(part, refusal("ExpiredToken"))
    options = s3(server)
    del options["aws_access_key_id"], options["aws_secret_access_key"]
    store = RemoteStore("s3://bucket", options, credentials=credentials)
    for _ in range(3):
        assert bytes(fetch(store, (1, 5)).wait()) == DATA[1:6]
    assert len(asked) == 2
    names = [request.headers["authorization"].split("/")[0] for request in server.seen]
    assert [name[-5:] for name in names] == ["name1", "name1", "name2", "name2"]
    server.always = refusal("AccessDenied")
    with pytest.raises(StoreError, match="403 AccessDenied") as error:
        fetch(store, (1, 5)).wait()
    assert kind(error) == "denied"
    assert SECRET not in str(error.value)


def test_expired_credentials_of_a_function_are_renewed_before_use(serve: Serve) -> None:
    asked: list[int] = []

    def credentials() -> dict[str, str]:
        asked.append(1)
        keys = {"aws_access_key_id": "name", "aws_secret_access_key": SECRET}
        return keys | {"expires_at": str(time.time() + 1)}

    store = RemoteStore("s3://bucket", s3(serve()), credentials=credentials)
    for _ in range(2):
        fetch(store, (1, 5)).wait()
        fetch(store, (1, 5)).wait()
        time.sleep(1)
    assert len(asked) == 2


def test_a_function_for_credentials_that_fails_is_an_error_without_its_text(serve: Serve) -> None:
    def credentials() -> dict[str, str]:
        raise RuntimeError(SECRET)

    store = RemoteStore("s3://bucket", s3(serve()), credentials=credentials)
    with pytest.raises(StoreError, match="function for credentials failed") as error:
        store.head("x")
    assert kind(error) == "denied"
    assert SECRET not in str(error.value)


def listing(*keys: str, folders: tuple[str, ...] = (), token: str = "", end: str = "") -> Answer:
    def answer(request: Request, connection: socket.socket) -> None:
        objects = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-10-21T07:28:00.000Z</LastModified>"
            f"<ETag>&quot;{k}&quot;</ETag><Size>{k}</Size></Contents>"
            for k, key in enumerate(keys)
        )
        below = "".join(
            f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in folders
        )
        more = (
            f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
            if token
            else "<IsTruncated>false</IsTruncated>"
        )
        text = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>bucket</Name>'
            f"<Prefix>p</Prefix>{more}{objects}{below}</ListBucketResult>"
        )
        text = text.replace(end, "") if end else text
        body = text.encode()
        send(connection, "200 OK", {"Content-Length": str(len(body))}, body)

    return answer


NAMES = ["p", "p//q", "p/", "p/../x", "p/./x", "p%20x", "p+x", "p&amp;x", "p&#x20;y", "pü", "p&#46;"]
READ = ["p", "p//q", "p/", "p/../x", "p/./x", "p%20x", "p+x", "p&x", "p y", "pü", "p."]


def test_a_listing_gives_every_name_as_it_is(serve: Serve) -> None:
    server = serve(listing(*NAMES[:4], token="more"), listing(*NAMES[4:]))  # noqa: S106
    found = RemoteStore("s3://bucket", s3(server)).list("p")
    assert [key for key, _ in found] == sorted(READ, key=str.encode)
    assert dict(found)["p//q"] == ObjectState(1, '"1"', None, 1792567680000)
    assert "continuation-token=more" in server.seen[1].target
    assert all("prefix=p" in request.target for request in server.seen)


def test_folders_of_any_name_are_listed(serve: Serve) -> None:
    server = serve(listing("p/1", folders=("p/a/", "p//", "p/../", "p/&amp;/")))
    objects, folders = RemoteStore("s3://bucket", s3(server)).list_folder("p/")
    assert [key for key, _ in objects] == ["p/1"]
    assert folders == sorted(["p/a/", "p//", "p/../", "p/&/"])
    assert "delimiter=%2F" in server.seen[0].target


@pytest.mark.parametrize("end", ["</ListBucketResult>", "<NextContinuationToken>more</NextContinuationToken>"])
def test_a_listing_that_is_cut_is_asked_for_again_and_never_believed(
    serve: Serve, end: str
) -> None:
    cut = listing("a", "b", token="more", end=end)  # noqa: S106
    good = [listing("a", "b", "c", token="more"), listing("d")]  # noqa: S106
    store = RemoteStore("s3://bucket", s3(serve(cut, *good)))
    assert [key for key, _ in store.list("")] == ["a", "b", "c", "d"]
    with pytest.raises(StoreError, match="listing"):
        RemoteStore("s3://bucket", s3(serve(always=cut))).list("")


def test_a_listing_in_a_circle_ends(serve: Serve) -> None:
    store = RemoteStore("s3://bucket", s3(serve(always=listing("a", token="more"))))  # noqa: S106
    with pytest.raises(StoreError, match="circle"):
        store.list("")


def test_a_web_server_has_no_listing(serve: Serve) -> None:
    with pytest.raises(StoreError, match="no listing") as error:
        RemoteStore(serve().url, {}).list("")
    assert kind(error) == "unsupported"


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", "./a", "..", "a\nb"])
def test_names_that_would_read_another_object_are_refused(serve: Serve, key: str) -> None:
    server = serve()
    store = RemoteStore("s3://bucket", s3(server))
    for work in (store.head, store.delete, lambda key: store.first(key, 0, 1)):
        with pytest.raises(StoreError, match="cannot be read") as error:
            work(key)
        assert kind(error) == "unsupported"
    assert not server.seen


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
    assert pickle.loads(pickle.dumps(state)) == state  # noqa: S301
    assert len({state, ObjectState(5, '"a"', None, 7), ObjectState(5, '"b"')}) == 2
    assert repr(state) == 'ObjectState(5, "\\"a\\"", None, 7)'
    with pytest.raises(AttributeError):
        state.size = 6  # pyright: ignore[reportAttributeAccessIssue]
