"""The command takes from its environment what the node agent puts there, and arguments go before."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.agent import config as agent
from spot_work import __main__ as command
from spot_work.queues import Queue
from userdata.agent.work.service import queue

URL = "amqps://gpu-spot:pa55@b-1.example.com:5671"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(command, "serve", lambda *given, **more: calls.append(given))
    for name, value in queue.environment(agent.Queue("ocr", "queues/ocr", tries=3, most=10), URL).items():
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


def test_a_queue_of_sqs_is_told_without_a_secret(
    served: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPOT_WORK_TRIES", "SPOT_WORK_MOST"):
        monkeypatch.delenv(name)
    for name, value in queue.environment(agent.Queue("ocr", url="sqs://us-west-2/123456789012")).items():
        monkeypatch.setenv(name, value)
    assert command.main(["builtins:len"]) == 0
    assert served[0][1:3] == (Queue("ocr"), "sqs://us-west-2/123456789012")


@pytest.mark.parametrize("place", [{}, {"secret": "a", "url": "sqs://us-west-2/123456789012"}])
def test_a_queue_is_found_one_way(place: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="one is needed"):
        agent.Queue("ocr", **place)


def test_both_ends_have_the_same_defaults() -> None:
    ours = agent.Queue("ocr", "queues/ocr")
    assert (ours.tries, ours.most) == (Queue.tries, Queue.most)
