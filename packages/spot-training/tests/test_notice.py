"""The notice: from the file, from the signal, from the metadata service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spot_training import Notice
from spot_training.notice import get_metadata
from support.waiting import TIMEOUT_SECONDS, wait_until


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_agents_file_is_the_notice_and_has_the_deadline(tmp_path: Path) -> None:
    now, step, file = [0.0], [1000.0], tmp_path / "notice.json"
    notice = Notice(
        environment={"GPU_SPOT_NOTICE": str(file)}, wall=lambda: step[0] + now[0], clock=lambda: now[0]
    )
    assert not notice.received
    assert notice.deadline is None
    assert notice.seconds_left is None
    file.write_text(json.dumps({"version": 1, "kind": "spot", "deadline": 1090.5}))
    now[0] = 0.5
    assert not notice.received  # looked for once a second
    now[0] = 1.5
    assert notice.received
    assert (notice.deadline, notice.seconds_left) == (1090.5, 89.0)
    step[0] = 5000.0
    assert (notice.deadline, notice.seconds_left) == (5090.5, 89.0)
    now[0] = 200.0
    assert notice.seconds_left == 0.0
    notice.close()


def test_a_notice_that_cannot_be_read_is_one_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "notice.json"
    file.write_text("{")
    environment = {"GPU_SPOT_NOTICE": str(file)}
    notice = Notice(environment=environment, wall=lambda: 50.0, clock=lambda: 3.0)
    assert notice.received
    assert notice.deadline == 170.0
    assert "assuming two minutes" in caplog.text
    notice.close()


def test_sigterm_is_handled_and_the_previous_handler_is_called(tmp_path: Path) -> None:
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))
    file = tmp_path / "notice.json"
    environment = {"GPU_SPOT_NOTICE": str(file)}
    notice = Notice(environment=environment, wall=lambda: 7.0, clock=lambda: 3.0)
    os.kill(os.getpid(), signal.SIGTERM)
    wait_until(lambda: notice.received)
    assert signals == [signal.SIGTERM]
    assert notice.seconds_left == 100.0
    file.write_text('{"deadline": 127.0}')  # the agent knows better
    assert notice.seconds_left == 120.0
    notice.close()
    os.kill(os.getpid(), signal.SIGTERM)
    wait_until(lambda: len(signals) == 2)


def test_without_a_handler_before_it_the_process_lives_on() -> None:
    script = (
        "import os, signal; from spot_training import Notice; notice = Notice(environment={});"
        "os.kill(os.getpid(), signal.SIGTERM); print(notice.received)"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "True\n"


def test_another_thread_reads_the_file_and_logs_that_sigterm_is_not_handled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, created = tmp_path / "notice.json", []
    file.write_text('{"deadline": 1.0}')
    thread = threading.Thread(
        target=lambda: created.append(Notice(environment={"GPU_SPOT_NOTICE": str(file)}))
    )
    thread.start()
    thread.join()
    assert created[0].received
    assert [record.getMessage() for record in caplog.records] == [
        "no SIGTERM handler: it can be installed in the main thread only"
    ]


def test_the_metadata_service_is_polled_without_an_agent() -> None:
    answers: list[Any] = [OSError("gone"), None, '{"action": "stop", "time": "2017-09-18T08:22:00Z"}']
    asked = threading.Event()

    def metadata(path: str) -> str | None:
        assert path == "spot/instance-action"
        asked.set()
        answer = answers.pop()
        if isinstance(answer, OSError):
            raise answer
        return answer

    notice = Notice(environment={}, metadata=metadata)
    assert asked.wait(TIMEOUT_SECONDS)
    wait_until(lambda: notice.received)
    assert notice.deadline == 1505722920.0
    notice.close()
    quiet = Notice(environment={"GPU_SPOT_NOTICE": "/nowhere"}, metadata=metadata)
    assert not quiet.received
    quiet.close()
    assert len(answers) == 2


class Metadata(BaseHTTPRequestHandler):  # version 2: no answer without a token that was put
    def do_PUT(self) -> None:
        assert self.path == "/latest/api/token"
        self._say(200 if self.headers["X-aws-ec2-metadata-token-ttl-seconds"] else 400, self.server.token)  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        wrong = 401 * (self.headers["X-aws-ec2-metadata-token"] != "key") or 404 * self.path.endswith("none")
        self._say(wrong or 200, "" if wrong else self.path)

    def _say(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *given: Any) -> None:
        pass


def test_the_service_is_asked_with_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # it is on this machine, not behind a proxy
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, server.token = f"http://127.0.0.1:{server.server_port}", "key"  # type: ignore[attr-defined]
        assert get_metadata("spot/instance-action", host) == "/latest/meta-data/spot/instance-action"
        assert get_metadata("none", host) is None
        for server.token in ("another", "<p>\na page</p>"):  # type: ignore[attr-defined]
            with pytest.raises(OSError, match=r"401 for meta-data/none|is no metadata service"):
                get_metadata("none", host)
        server.shutdown()


def test_a_deferred_handler_is_called_after_the_save_and_another_one_is_taken_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    calls: list[str] = []

    def own(number: int, frame: object) -> None:
        calls.append("own")
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGTERM)
    notice = Notice(environment={})
    notice.defers = True
    try:
        signal.signal(signal.SIGTERM, own)
        assert not notice.has_handler
        notice.take_back()
        assert notice.has_handler
        assert "called after the save" in capsys.readouterr().err
        os.kill(os.getpid(), signal.SIGTERM)
        assert (notice.received, calls) == (True, [])
        notice.call_previous()
        assert calls == ["own"]
    finally:
        notice.close()
        signal.signal(signal.SIGTERM, before)
