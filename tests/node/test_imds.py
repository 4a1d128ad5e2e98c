from __future__ import annotations

import socket
import threading

import pytest

from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.aws.imds import LIFECYCLE_STATE, Metadata, MetadataUnavailableError, is_warmed
from userdata.agent.aws.plain_http import request


def test_the_token_is_fetched_once_and_renewed_before_it_ends(
    clock: FakeClock, metadata_server: MetadataServer
) -> None:
    metadata = Metadata(clock, metadata_server.url)
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    for _ in range(3):
        assert metadata.lifecycle_state() == "InService"
    assert [r[0] for r in metadata_server.requests].count("PUT") == 1
    clock.advance(21600 - 200)
    assert metadata.lifecycle_state() == "InService"
    assert [r[0] for r in metadata_server.requests].count("PUT") == 2


def test_a_token_that_the_service_forgot_is_replaced(
    clock: FakeClock, metadata_server: MetadataServer
) -> None:
    metadata = Metadata(clock, metadata_server.url)
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    metadata.lifecycle_state()
    metadata_server.tokens.clear()
    assert metadata.lifecycle_state() == "InService"
    assert [r[2] for r in metadata_server.requests][-3:] == [401, 200, 200]


def test_a_renewal_that_fails_leaves_the_old_token_in_use_while_it_holds(
    clock: FakeClock, metadata_server: MetadataServer
) -> None:
    metadata = Metadata(clock, metadata_server.url)
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    metadata.lifecycle_state()
    clock.advance(21600 - 200)
    metadata_server.status, metadata_server.methods = 503, {"PUT"}
    assert metadata.lifecycle_state() == "InService"
    clock.advance(200)
    with pytest.raises(MetadataUnavailableError, match="status 503"):
        metadata.lifecycle_state()
    metadata_server.status = None
    assert metadata.lifecycle_state() == "InService"
    assert len(metadata_server.tokens) == 2


def test_a_renewal_that_is_not_answered_leaves_the_old_token_in_use(
    clock: FakeClock, metadata_server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = Metadata(clock, metadata_server.url)
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    metadata.lifecycle_state()
    clock.advance(21600 - 200)

    def silent_to_put(address: object, method: str, *rest: object) -> tuple[int, dict[str, str], str]:
        if method == "PUT":
            raise TimeoutError
        return request(address, method, *rest)

    monkeypatch.setattr("userdata.agent.aws.imds.plain_http.request", silent_to_put)
    assert metadata.lifecycle_state() == "InService"
    clock.advance(200)
    with pytest.raises(MetadataUnavailableError, match="TimeoutError"):
        metadata.lifecycle_state()


def test_no_document_is_not_no_service(clock: FakeClock, metadata_server: MetadataServer) -> None:
    metadata = Metadata(clock, metadata_server.url)
    assert metadata.lifecycle_state() == ""
    metadata_server.close()
    with pytest.raises(MetadataUnavailableError):
        Metadata(clock, metadata_server.url).lifecycle_state()


def test_the_identity_is_read(clock: FakeClock, metadata_server: MetadataServer) -> None:
    metadata_server.documents["/latest/dynamic/instance-identity/document"] = (
        '{"instanceId": "i-1", "availabilityZone": "us-west-2a", "region": "us-west-2", '
        '"instanceType": "g5.xlarge", "accountId": "123456789012", "more": 1}'
    )
    identity = Metadata(clock, metadata_server.url).identity()
    assert (identity.instance, identity.zone, identity.instance_type) == ("i-1", "us-west-2a", "g5.xlarge")
    assert identity.account == "123456789012"


@pytest.mark.parametrize(("state", "quiet"), [("Warmed:Stopped", True), ("InService", False), ("", False)])
def test_warmed(state: str, quiet: bool) -> None:
    assert is_warmed(state) is quiet


def answer(
    raw: bytes, *, keep_open: bool = False, timeout: float = TIMEOUT_SECONDS
) -> tuple[int, dict[str, str], str]:
    """Ask a server that answers with ``raw``, whatever it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(raw)
                if keep_open:
                    done.wait(TIMEOUT_SECONDS)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            return request(server.getsockname(), "GET", "/x", {}, timeout)
        finally:
            done.set()
            thread.join()


def test_an_answer_with_a_length_ends_there_though_the_connection_stays() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: x\r\n\r\nabc"
    status, headers, text = answer(raw, keep_open=True)
    assert (status, headers["date"], text) == (200, "x", "abc")


def test_an_answer_without_a_length_and_one_in_chunks() -> None:
    assert answer(b"HTTP/1.0 404 Not Found\r\n\r\nnone")[0::2] == (404, "none")
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=1\r\nde\r\n0\r\n\r\n"
    assert answer(raw)[2] == "abcde"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + b"x" * 99999,
    ],
)
def test_what_is_no_whole_answer_is_an_error(raw: bytes) -> None:
    with pytest.raises(OSError, match=r"not valid HTTP|bytes|chunk"):
        answer(raw)


def test_a_service_that_hangs_costs_no_more_than_the_timeout() -> None:
    with pytest.raises(TimeoutError):  # the server itself holds on for PATIENCE
        answer(b"HTTP/1.1 200 OK\r\n", keep_open=True, timeout=0.3)


def test_the_services_time_is_read(clock: FakeClock, metadata_server: MetadataServer) -> None:
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    metadata_server.wall = lambda: 1_700_000_000.0
    found = Metadata(clock, metadata_server.url).get(LIFECYCLE_STATE)
    assert found.date == 1_700_000_000.0
