"""The command takes from its environment what the node agent puts there, and arguments go before."""

from __future__ import annotations

from typing import Any

import pytest

from spot_work import __main__ as command
from spot_work.queues import Queue
from userdata.agent.config import model as agent
from userdata.agent.work import queue

URL = "amqps://gpu-spot:pa55@b-1.example.com:5671"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(command, "serve", lambda *given, **more: calls.append(given))
    for name, value in queue.environment(agent.Queue("queues/ocr", "ocr", tries=3, most=10), URL).items():
        monkeypatch.setenv(name, value)
    return calls


def test_what_the_agent_says_is_enough(served: list[tuple[Any, ...]]) -> None:
    assert command.main(["builtins:len"]) == 0
    [(function, asked, url, _)] = served
    assert (function, asked, url) == (len, Queue("ocr", tries=3, most=10), URL)


def test_arguments_go_before_it(served: list[tuple[Any, ...]]) -> None:
    assert command.main(["builtins:len", "--queue", "pages", "--tries", "5", "--most", "0"]) == 0
    assert served[0][1] == Queue("pages", tries=5, most=0)


def test_without_it_the_queue_must_be_named(
    served: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPOT_WORK_QUEUE")
    with pytest.raises(SystemExit):
        command.main(["builtins:len"])
    assert "--queue" in capsys.readouterr().err


def test_both_ends_have_the_same_defaults() -> None:
    ours = agent.Queue("queues/ocr", "ocr")
    assert (ours.tries, ours.most) == (Queue.tries, Queue.most)
