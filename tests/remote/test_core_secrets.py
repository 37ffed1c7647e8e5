"""Options and credentials of the core's store, and that no secret is ever shown."""

from __future__ import annotations

import os
import socket
import time

import pytest

from penstock._core import RemoteStore, StoreError
from remote.liar import (
    DATA,
    SECRET,
    Answer,
    Request,
    Serve,
    endless_redirect,
    fetch,
    kind,
    part,
    replaced,
    reset,
    s3,
    send,
    shifted,
    status,
    whole,
)


def test_the_query_of_an_address_is_sent_and_never_shown(serve: Serve) -> None:
    server = serve()
    store = RemoteStore(f"{server.url}?X-Amz-Signature={SECRET}", {}, deadline_s=1)
    assert bytes(store.first("a b/x", 0, 5).wait()) == DATA[:5]
    assert server.seen[0].target == f"/a%20b/x?X-Amz-Signature={SECRET}"
    assert SECRET not in repr(store)
    for always in (shifted, whole, replaced, reset, endless_redirect, status("403 Forbidden")):
        server.always = always
        with pytest.raises(StoreError) as error:
            fetch(store, (0, 5)).wait()
        assert SECRET not in str(error.value) + repr(error.value)


def test_a_password_in_an_address_is_never_shown(serve: Serve) -> None:
    url = serve().url.replace("http://", f"http://user:{SECRET}@")
    assert SECRET not in repr(RemoteStore(url, {}))


def test_an_unknown_option_is_named_without_its_value() -> None:
    with pytest.raises(ValueError, match="aws_secret_acess_key") as error:
        RemoteStore("s3://bucket", {"aws_secret_acess_key": SECRET})
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://bucket", {"aws_allow_http": SECRET}),
        ("gs://bucket", {"google_service_account_key": SECRET}),
        ("az://box", {"azure_storage_account_key": SECRET}),
        (
            "az://box",
            {"azure_storage_account_name": "a", "azure_storage_account_key": SECRET + "-"},
        ),
        (f"ftp://user:{SECRET}@host", {}),
        (f"s3://user:{SECRET}@", {}),
        (SECRET, {}),
    ],
)
def test_options_that_do_not_fit_are_errors_without_secrets(
    url: str, options: dict[str, str]
) -> None:
    with pytest.raises(ValueError) as error:
        RemoteStore(url, options)
    assert SECRET not in str(error.value)


def test_an_endpoint_without_tls_must_be_allowed(serve: Serve) -> None:
    with pytest.raises(ValueError, match="aws_allow_http=true"):
        RemoteStore("s3://bucket", s3(serve(), aws_allow_http="false"))


def test_times_must_be_positive() -> None:
    for seconds in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="positive"):
            RemoteStore("http://127.0.0.1", {}, deadline_s=seconds)


def test_patience_has_no_upper_limit(serve: Serve) -> None:
    store = RemoteStore(serve().url, {}, deadline_s=1e300, stall_s=float("inf"))
    assert bytes(fetch(store, (0, 5)).wait()) == DATA[:5]
    assert bytes(store.first("x", 0, 2**64 - 1).wait()) == DATA


def test_nobody_there_is_said_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    before = time.monotonic()
    with pytest.raises(StoreError, match=f"nobody answers at 127.0.0.1:{port}") as error:
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
