from __future__ import annotations

import socket
import threading

import pytest

from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.aws.imds import LIFECYCLE_STATE, Metadata
from userdata.agent.aws.plain_http import request


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
    with pytest.raises(OSError, match=r"invalid HTTP|bytes|chunk"):
        answer(raw)


def test_a_service_that_hangs_costs_no_more_than_the_timeout() -> None:
    with pytest.raises(TimeoutError):  # the server itself holds on for PATIENCE
        answer(b"HTTP/1.1 200 OK\r\n", keep_open=True, timeout=0.3)


def test_the_services_time_is_read(clock: FakeClock, metadata_server: MetadataServer) -> None:
    metadata_server.documents[LIFECYCLE_STATE] = "InService"
    metadata_server.wall = lambda: 1_700_000_000.0
    found = Metadata(clock, metadata_server.url).get(LIFECYCLE_STATE)
    assert found is not None
    assert found.date == 1_700_000_000.0
