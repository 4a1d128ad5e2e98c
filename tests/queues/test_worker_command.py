"""The command reads its defaults from the node agent's environment variables; arguments take precedence."""

from __future__ import annotations

from typing import Any

import pytest

from contracts.agent import config as agent
from spot_work import __main__ as command
from spot_work.queue.settings import Queue
from userdata.agent.work.service import queue

URL = "amqps://gpu-spot:pa55@b-1.example.com:5671"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(command, "serve", lambda *args, **kwargs: calls.append(args))
    for name, value in queue.environment(
        agent.Queue("ocr", "queues/ocr", max_deliveries=3, max_length=10), URL
    ).items():
        monkeypatch.setenv(name, value)
    return calls


def test_the_agents_environment_is_sufficient(served: list[tuple[Any, ...]]) -> None:
    assert command.main(["builtins:len"]) == 0
    [(function, served_queue, url, _)] = served
    assert (function, served_queue, url) == (len, Queue("ocr", max_deliveries=3, max_length=10), URL)


def test_arguments_take_precedence(served: list[tuple[Any, ...]]) -> None:
    assert (
        command.main(["builtins:len", "--queue", "pages", "--max-deliveries", "5", "--max-length", "0"]) == 0
    )
    assert served[0][1] == Queue("pages", max_deliveries=5, max_length=0)


def test_without_the_environment_the_queue_is_required(
    served: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPOT_WORK_QUEUE")
    with pytest.raises(SystemExit):
        command.main(["builtins:len"])
    assert "--queue" in capsys.readouterr().err


def test_the_agent_passes_an_sqs_queue_by_url(
    served: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPOT_WORK_TRIES", "SPOT_WORK_MOST"):
        monkeypatch.delenv(name)
    for name, value in queue.environment(agent.Queue("ocr", url="sqs://us-west-2/123456789012")).items():
        monkeypatch.setenv(name, value)
    assert command.main(["builtins:len"]) == 0
    assert served[0][1:3] == (Queue("ocr"), "sqs://us-west-2/123456789012")


@pytest.mark.parametrize("source", [{}, {"secret": "a", "url": "sqs://us-west-2/123456789012"}])
def test_a_queue_needs_either_a_secret_or_a_url(source: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must have one of secret and url"):
        agent.Queue("ocr", **source)


def test_agent_and_package_have_the_same_defaults() -> None:
    queue_ = agent.Queue("ocr", "queues/ocr")
    assert (queue_.max_deliveries, queue_.max_length) == (Queue.max_deliveries, Queue.max_length)
