from __future__ import annotations

import errno
import json
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from contracts.agent.names import UNIT_RUN, UNIT_VOLUME, UNIT_WORK
from tests.node import configs
from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer
from tests.node.units import UnitHost
from userdata.agent.aws.imds import LIFECYCLE_STATE, REBALANCE, SPOT_ACTION, Metadata
from userdata.agent.machine import files
from userdata.agent.machine.errors import AgentError
from userdata.agent.work import notice, process
from userdata.agent.work.notice_watcher import Watcher


class Node:
    """A watcher and the world it sees; the service's clock is ``true``, which no jump moves."""

    def __init__(self, tmp: Path, clock: FakeClock, server: MetadataServer, body: dict[str, Any]) -> None:
        self.clock, self.server, self.directory = clock, server, tmp
        self.host = UnitHost()
        self.host.pids = {UNIT_RUN: 11, UNIT_WORK: 12}
        self.hook_calls: list[float] = []
        self.hook: Callable[[], bool] = lambda: True
        self.start = clock.wall() - clock.monotonic()
        self.body = body
        server.wall = self.true
        self.restart()

    def true(self) -> float:
        return self.start + self.clock.monotonic()

    def restart(self) -> None:
        def complete() -> bool:
            self.hook_calls.append(self.clock.monotonic())
            return self.hook()

        metadata = Metadata(self.clock, self.server.url)
        self.watcher = Watcher(
            configs.load(self.body), metadata, self.host, self.clock, self.directory, complete
        )

    def interrupt(self, seconds: float = 120.0) -> float:
        """Post a spot notice; return its deadline on the monotonic clock."""
        time = datetime.fromtimestamp(int(self.true() + seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.server.documents[SPOT_ACTION] = json.dumps({"action": "terminate", "time": time})
        return self.clock.monotonic() + seconds

    def passes(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        self.watcher.run(lambda: self.clock.monotonic() >= end)

    def signals(self) -> list[tuple[int, signal.Signals]]:
        return self.host.signals

    def file(self) -> notice.Notice | None:
        return notice.read(self.directory)

    def notice(self) -> notice.Notice:
        found = self.file()
        assert found is not None
        return found


@pytest.fixture
def training(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Node]:
    return Node(tmp_path, clock, metadata_server, configs.training())


@pytest.fixture
def service(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Node]:
    return Node(tmp_path, clock, metadata_server, configs.service())


def test_training_gets_sigterm_at_once_and_the_file_has_the_deadline(training: Node) -> None:
    training.watcher.tick()
    assert training.file() is None
    training.interrupt()
    training.watcher.tick()
    found = training.notice()
    assert found.deadline == pytest.approx(training.true() + 120, abs=2)
    assert found.kind == "spot"
    assert training.signals() == [(11, signal.SIGTERM)]
    text = json.loads((training.directory / "notice.json").read_text())
    assert text["drainAt"] == pytest.approx(found.deadline - 20)
    assert (training.directory / "notice.json").stat().st_mode & 0o777 == 0o644


def test_a_full_run_folder_takes_no_signal_away(training: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_atomic", full)
    training.server.documents[REBALANCE] = "{}"
    training.watcher.tick()
    training.interrupt()
    training.watcher.tick()
    assert training.signals() == [(11, signal.SIGTERM)]


def test_service_workers_get_sigterm_at_drain_at_and_not_before(service: Node) -> None:
    service.interrupt()
    service.watcher.tick()
    assert service.file() is not None
    service.passes(97)
    assert service.signals() == []
    service.passes(5)
    assert service.signals() == [(12, signal.SIGTERM)]


def test_the_work_gets_the_whole_notice_before_the_hook_is_completed(training: Node) -> None:
    deadline = training.interrupt()
    training.server.documents[LIFECYCLE_STATE] = "Terminated"
    training.passes(130)
    assert len(training.hook_calls) == 1
    assert training.hook_calls[0] >= deadline - 5
    assert training.hook_calls[0] <= deadline


def test_the_hook_is_completed_early_when_the_work_has_ended(training: Node) -> None:
    training.interrupt()
    training.server.documents[LIFECYCLE_STATE] = "Terminated"
    training.watcher.tick()
    training.host.pids.clear()
    started_at = training.clock.monotonic()
    training.passes(10)
    assert training.hook_calls == [pytest.approx(started_at, abs=2)]


def test_the_hook_waits_for_a_volume_up_that_still_gives_back(training: Node) -> None:
    training.server.documents[LIFECYCLE_STATE] = "Terminated"
    training.host.pids = {UNIT_VOLUME: 13}
    training.passes(20)
    assert training.hook_calls == []
    assert training.signals() == []  # it reads the notice from the file
    training.host.pids.clear()
    started_at = training.clock.monotonic()
    training.passes(10)
    assert training.hook_calls == [pytest.approx(started_at, abs=2)]


def test_a_hook_that_is_not_active_yet_is_tried_again(training: Node) -> None:
    training.interrupt()
    answers = iter([False, False, True])
    training.hook = lambda: next(answers)
    training.passes(130)
    assert len(training.hook_calls) == 3


def test_a_hook_that_fails_does_not_stop_the_watch(training: Node) -> None:
    def fail() -> bool:
        raise AgentError("AccessDenied")

    training.interrupt()
    training.hook = fail
    training.passes(125)
    assert len(training.hook_calls) > 3


def test_a_scale_in_is_a_notice_with_the_hooks_time(service: Node) -> None:
    service.server.documents[LIFECYCLE_STATE] = "Terminated"
    service.watcher.tick()
    found = service.notice()
    assert found.kind == "lifecycle"
    assert found.deadline - service.clock.wall() == pytest.approx(300)
    # Others serve already, and each second is paid for.
    assert service.signals() == [(12, signal.SIGTERM)]


def test_an_instance_that_returns_to_the_warm_pool_ends_its_work_then_completes_the_hook(
    service: Node,
) -> None:
    for state in ("InService", "Warmed:Stopped"):
        service.server.documents[LIFECYCLE_STATE] = state
        service.watcher.tick()
    found = service.notice()
    assert (found.kind, found.action) == ("lifecycle", "stop")
    assert service.signals() == [(12, signal.SIGTERM)]
    service.restart()  # whoever is killed on the way goes on
    service.passes(10)
    assert service.hook_calls == []  # it still drains
    service.host.pids.clear()
    service.passes(2)
    assert len(service.hook_calls) == 1


def test_on_its_way_into_the_warm_pool_nothing_that_works_is_ended(service: Node) -> None:
    service.server.documents[LIFECYCLE_STATE] = "Warmed:Stopped"
    service.passes(20)
    assert (service.file(), service.signals(), service.hook_calls) == (None, [], [])


def test_an_earlier_deadline_replaces_a_later_one_and_not_the_other_way_round(training: Node) -> None:
    training.server.documents[LIFECYCLE_STATE] = "Terminated"
    training.watcher.tick()
    training.interrupt(60)
    training.watcher.tick()
    found = training.notice()
    assert found.kind == "spot"
    training.passes(10)
    assert training.file() == found
    assert len(training.signals()) == 1


@pytest.mark.parametrize("jump", [-86400.0, -600.0, 600.0, 86400.0])
def test_a_wrong_local_clock_moves_no_deadline(service: Node, jump: float) -> None:
    service.clock.jump(jump)
    started_at = service.clock.monotonic()
    service.interrupt()
    service.watcher.tick()
    service.clock.jump(-jump / 2)  # and again in the middle of the notice
    service.passes(97)
    assert service.signals() == []
    service.passes(5)
    assert len(service.signals()) == 1
    service.passes(30)
    assert 115 <= service.hook_calls[0] - started_at <= 120


def test_a_wrong_local_clock_without_the_services_time_still_gives_two_minutes(service: Node) -> None:
    service.server.wall = None
    service.clock.jump(3600)
    service.interrupt()
    service.watcher.tick()
    found = service.notice()
    assert found.deadline - service.clock.wall() == pytest.approx(120)


def test_a_notice_read_after_its_time_has_no_time_left(service: Node) -> None:
    service.interrupt()
    service.clock.sleep(300)  # the metadata service was silent meanwhile
    service.watcher.tick()
    assert service.notice().deadline <= service.clock.wall()


def test_unavailable_metadata_delay_the_notice_and_nothing_else(training: Node) -> None:
    training.interrupt()
    training.server.status = 503
    training.passes(10)
    assert training.file() is None
    training.server.status = None
    training.passes(5)
    assert training.file() is not None


def test_a_notice_is_not_withdrawn_when_the_metadata_fall_silent(service: Node) -> None:
    service.interrupt()
    service.watcher.tick()
    service.server.status = 503
    service.passes(105)
    assert len(service.signals()) == 1


def test_a_restarted_watcher_takes_the_notice_up_again(service: Node) -> None:
    deadline = service.interrupt()
    service.watcher.tick()
    service.passes(50)
    service.server.documents.clear()
    service.restart()
    service.passes(80)
    assert len(service.signals()) == 1
    assert service.hook_calls[0] == pytest.approx(deadline - 3, abs=2)


@pytest.mark.parametrize("seconds", [-4000.0, 4000.0])
def test_a_clock_that_steps_after_the_notice_moves_no_deadline(service: Node, seconds: float) -> None:
    deadline = service.interrupt()
    service.watcher.tick()
    service.passes(20)
    service.clock.jump(seconds)
    left, drain = deadline - service.clock.monotonic(), service.body["drainSeconds"]
    assert process.seconds_to_save(service.file(), service.clock) == pytest.approx(left - 10, abs=2)
    assert not notice.is_drain_due(service.directory, service.clock)
    service.restart()
    service.passes(left - drain + 2)
    assert notice.is_drain_due(service.directory, service.clock)
    assert len(service.signals()) == 1


def test_a_document_that_cannot_be_read_is_a_notice(training: Node) -> None:
    training.server.documents[SPOT_ACTION] = "<html>"
    training.watcher.tick()
    found = training.notice()
    assert found.deadline - found.received_at == 120
    assert training.signals()


def test_a_rebalance_recommendation_is_a_hint_and_no_notice(training: Node) -> None:
    training.server.documents[REBALANCE] = '{"noticeTime": "2026-11-21T12:00:00Z"}'
    training.passes(10)
    assert training.file() is None
    assert training.signals() == []
    hint = json.loads((training.directory / "rebalance.json").read_text())
    assert hint["document"] == training.server.documents[REBALANCE]


def test_passes_keep_their_grid_though_each_takes_time(training: Node) -> None:
    looks: list[float] = []
    original = training.watcher._read_metadata

    def slow(path: str) -> Any:
        looks.append(training.clock.monotonic()) if path == SPOT_ACTION else None
        training.clock.advance(0.9)
        return original(path)

    training.watcher._read_metadata = slow  # type: ignore[method-assign]
    training.passes(50)
    assert {round(b - a, 3) for a, b in pairwise(looks)} == {5.0}


def test_the_notice_is_stored_word_for_word(tmp_path: Path) -> None:
    seen = notice.Notice(
        "spot", "terminate", "2026-01-05T00:02:00Z", 1800000120.5, 1800000090.5, 1800000000.5, 900.25
    )
    notice.write(tmp_path, seen)
    assert json.loads((tmp_path / "notice.json").read_text()) == {
        "version": 1,
        "kind": "spot",
        "action": "terminate",
        "announced": "2026-01-05T00:02:00Z",
        "deadline": 1800000120.5,
        "drainAt": 1800000090.5,
        "seen": 1800000000.5,
        "uptime": 900.25,
    }
    assert notice.read(tmp_path) == seen
