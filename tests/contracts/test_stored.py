"""What is stored or configured, word for word: a stack of the version before reads and writes it, too.

A text here changes only together with an entry in CHANGELOG.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from typing import Any

import pytest

from contracts import broker_users, codec, watched_queue
from contracts.agent.nodes import JobNodes
from contracts.agent.version import VERSION
from contracts.group import config as group_config
from contracts.group import (
    health_settings,
    release,
    release_settings,
    replacement_requests,
    rollout_request,
    scaling_settings,
)
from contracts.jobs import attempt as attempts
from contracts.jobs import item as job_item
from contracts.jobs.item import HostFaults, JobItem, Retries
from contracts.registry import item as registry_item
from contracts.registry import queue_state
from contracts.registry.item import Worker
from lambdas.core.capacity import memory as capacity_memory
from lambdas.core.capacity.history import History, PoolRecord
from lambdas.core.capacity.memory import Memory
from lambdas.core.health import memory as health_memory
from lambdas.core.health.memory import HealthMemory
from lambdas.core.model import PurchaseOption
from lambdas.core.queues import history as queue_history
from lambdas.core.scaling import memory as scaling_memory
from lambdas.core.scaling.memory import ScalingMemory
from lambdas.core.scaling.profile import Profile
from tests.contracts.examples import (
    ATTEMPT,
    ATTEMPT_ITEM,
    BACKLOG,
    BACKLOG_ITEM,
    BROKERS,
    BROKERS_TEXT,
    CONFIG,
    CONFIG_TEXT,
    HEALTH,
    HEALTH_MEMORY,
    HEALTH_MEMORY_TEXT,
    HEALTH_TEXT,
    MEMORY,
    MEMORY_TEXT,
    QUEUE_HISTORY,
    QUEUE_HISTORY_TEXT,
    RELEASES,
    RELEASES_ITEM,
    REPLACEMENT_REQUESTS,
    REPLACEMENT_REQUESTS_TEXT,
    ROLLING,
    ROLLING_TEXT,
    SCALING,
    SCALING_MEMORY,
    SCALING_MEMORY_TEXT,
    SCALING_TEXT,
    SLICE,
    SLICE_TEXT,
    TENANTS,
    TENANTS_TEXT,
    WANTED,
    WANTED_TEXT,
    WATCHED,
    WATCHED_TEXT,
    WORKER,
    WORKER_ITEM,
    numbers,
    texts,
)
from userdata.agent.tenants import codec as tenants_codec

JOB = JobItem(
    state="running",
    reason="a reason",
    revision="a" * 40,
    changed_at=1800000000.0,
    holder="i-1",
    lease_expires_at=1800000120.0,
    token=107,
    volume="vol-1",
    writer=106,
    retries=Retries("a" * 40, 1),
    host_faults=HostFaults("a" * 40, 2, 1799990000.0),
    experiments=("sweep-1", "sweep-2"),
    nodes=JobNodes(2, 4),
)
JOB_ITEM = {
    **texts(
        job="resnet", state="running", reason="a reason", revision="a" * 40, holder="i-1", volume="vol-1"
    ),
    **numbers(changed="1800000000", leaseUntil="1800000120", token="107", writer="106"),
    "retries": {"M": {**texts(revision="a" * 40), **numbers(count="1")}},
    "hostFaults": {"M": {**texts(revision="a" * 40), **numbers(count="2", checkpoint="1799990000")}},
    "experiments": {"L": [{"S": "sweep-1"}, {"S": "sweep-2"}]},
    "nodes": {"M": numbers(min="2", max="4")},
}


TEXTS: list[tuple[str, Callable[[Any], str], Callable[[str], Any], Any, str]] = [
    ("config", group_config.dumps, group_config.parse, CONFIG, CONFIG_TEXT),
    ("health", health_settings.dumps, health_settings.parse, HEALTH, HEALTH_TEXT),
    ("scaling", scaling_settings.dumps, scaling_settings.parse, SCALING, SCALING_TEXT),
    ("release", release_settings.dumps, release_settings.parse, WANTED, WANTED_TEXT),
    ("rolling", rollout_request.dump, rollout_request.parse, ROLLING, ROLLING_TEXT),
    ("no rollout", rollout_request.dump, rollout_request.parse, rollout_request.NO_REQUEST, "{}"),
    (
        "replacements",
        replacement_requests.dump,
        replacement_requests.parse,
        REPLACEMENT_REQUESTS,
        REPLACEMENT_REQUESTS_TEXT,
    ),
    ("broker users", broker_users.dumps, broker_users.parse, BROKERS, BROKERS_TEXT),
    ("watched queues", watched_queue.dumps, watched_queue.parse, WATCHED, WATCHED_TEXT),
    ("health checker's memory", health_memory.dump, health_memory.parse, HEALTH_MEMORY, HEALTH_MEMORY_TEXT),
    ("scaler's memory", scaling_memory.dump, scaling_memory.parse, SCALING_MEMORY, SCALING_MEMORY_TEXT),
    ("queue watcher's memory", queue_history.dumps, queue_history.parse, QUEUE_HISTORY, QUEUE_HISTORY_TEXT),
    ("controller's memory", capacity_memory.dump, capacity_memory.parse, MEMORY, MEMORY_TEXT),
    ("tenants", tenants_codec.encode, tenants_codec.decode, TENANTS, TENANTS_TEXT),
    ("slice", tenants_codec.encode_slice, tenants_codec.decode_slice, SLICE, SLICE_TEXT),
]


@pytest.mark.parametrize(
    ("dump", "parse", "value", "text"), [t[1:] for t in TEXTS], ids=[t[0] for t in TEXTS]
)
def test_a_text_is_stored_word_for_word(
    dump: Callable[[Any], str], parse: Callable[[str], Any], value: object, text: str
) -> None:
    assert dump(value) == text
    assert parse(text) == value


def _pair(value: Any, read: Any) -> tuple[Any, Any]:
    return read, value


# Texts that earlier versions wrote: what has come since is not in them. At the end, a key of a later version.
OLD: list[tuple[str, Callable[[str], Any], str, Any]] = [
    (
        "config",
        group_config.parse,
        '{"kind": "spot-fleet", "primary": "sfr-1", "fallback": null, "base": 0, "spotPercentage": 100, '
        '"max": 8, "slots": {}, "drainSeconds": 0, "policy": {"name": "ready-handover"}}',
        lambda c: (
            (c.kind, c.fallback, c.break_before_make, c.run, c.zones, c.deadline, c.budget, c.by_zone),
            ("spot-fleet", None, False, "", (), 0.0, 0.0, False),
        ),
    ),
    (
        "controller's memory",
        capacity_memory.parse,
        '{"format":1,"termination_deadlines":{"i-1":5},"at_risk":{},"termination_requests":{},"boots":{"spot":[60]},"booted":["i-1"],'
        '"active_alarms":[]}',
        lambda m: (
            m,
            Memory(
                termination_deadlines={"i-1": 5.0},
                boots={PurchaseOption.SPOT: (60.0,)},
                booted=frozenset({"i-1"}),
            ),
        ),
    ),
    (
        "controller's history",
        capacity_memory.parse,
        '{"format":1,"termination_deadlines":{},"at_risk":{},"termination_requests":{},"boots":{},"booted":[],"active_alarms":[],'
        '"history":{"pools":{"p":{"since":null,"start_age":0.0,"losses":1.0,"expected":0.5}},"pool_by_instance":{},'
        '"capacity_unavailable":false,"losses":1.0,"unannounced":0.0}}',
        lambda m: (m.history, History({"p": PoolRecord(losses=1.0, expected=0.5)}, losses=1.0)),
    ),
    (
        "health checker's memory",
        health_memory.parse,
        '{"format":1,"pendingSymptoms":{},"remediations":{},"log":[],"versions":{},"incidents":{},'
        '"resolvedIncidents":{},"dailyReportDay":3}',
        lambda m: (m, HealthMemory(daily_report_day=3)),
    ),
    (
        "scaler's memory",
        scaling_memory.parse,
        '{"rates":{"3":1.25},"bin":[100,12.5,4],"throughput":[{},0.0],"arrivals":[],"wanted":[]}',
        lambda m: (m, ScalingMemory(Profile({3: 1.25}, 100, 12.5, 4))),
    ),
    *(
        (f"{name} of a later version", parse, text.replace("{", '{"later": [1], ', 1), partial(_pair, value))
        for name, _, parse, value, text in TEXTS
        if name in ("config", "health", "controller's memory")
    ),
]


@pytest.mark.parametrize(("parse", "text", "expected"), [o[1:] for o in OLD], ids=[o[0] for o in OLD])
def test_a_text_of_another_version_is_read(parse: Callable[[str], Any], text: str, expected: Any) -> None:
    read, wanted = expected(parse(text))
    assert read == wanted


def test_a_worker_is_a_row_of_the_registry() -> None:
    assert registry_item.dump(WORKER) == WORKER_ITEM
    assert registry_item.parse(WORKER_ITEM) == WORKER
    first = {key: WORKER_ITEM[key] for key in ("group", "worker", "since", "heartbeat")}
    assert registry_item.parse(first) == Worker(
        WORKER.partition, "i-1", 3, 1800000000.0, 1800000010.0, "ready"
    )
    assert registry_item.parse({**WORKER_ITEM, "later": {"BOOL": True}}) == WORKER


def test_a_heartbeat_updates_a_row() -> None:
    item = registry_item.heartbeat(
        "i-1",
        1800000010.0,
        "draining",
        1800000120.5,
        WORKER.progress,
        WORKER.report,
        WORKER.tenant_waits,
        is_first=True,
    )
    assert item == {
        "UpdateExpression": "SET instance = :instance, since = :now, heartbeat = :now, #state = :state, "
        "#expires = :expires, agentVersion = :agent, deadline = :deadline, progress = :progress, "
        "pulse = :pulse, waits = :waits REMOVE restart",
        "ExpressionAttributeNames": {"#state": "state", "#expires": "expires"},
        "ExpressionAttributeValues": {
            ":instance": {"S": "i-1"},
            ":now": {"N": "1800000010"},
            ":state": {"S": "draining"},
            ":expires": {"N": "1800003610"},
            ":agent": {"S": VERSION},
            ":deadline": WORKER_ITEM["deadline"],
            ":progress": WORKER_ITEM["progress"],
            ":pulse": WORKER_ITEM["pulse"],
            ":waits": WORKER_ITEM["waits"],
        },
    }


def test_a_queue_is_a_row_of_the_registry() -> None:
    assert queue_state.dump("ocr", BACKLOG) == BACKLOG_ITEM
    assert queue_state.parse(BACKLOG_ITEM) == BACKLOG


def test_releases_are_an_item_of_the_registry() -> None:
    assert release.dump("ocr", RELEASES) == RELEASES_ITEM
    assert release.parse(RELEASES_ITEM) == RELEASES


def test_an_attempt_is_an_item_of_the_job_table() -> None:
    assert attempts.dump("resnet", ATTEMPT) == ATTEMPT_ITEM
    assert attempts.parse(ATTEMPT_ITEM) == ATTEMPT
    new = ("booted", "first_step", "step", "repeated", "saving", "exporting")
    earlier = attempts.parse({key: value for key, value in ATTEMPT_ITEM.items() if key not in new})
    assert (earlier.booted, earlier.step, earlier.saving) == (0.0, None, None)


def test_the_examples_leave_no_field_at_its_default() -> None:
    for value in (CONFIG, HEALTH, SCALING, ROLLING, ATTEMPT, WORKER, WORKER.report, MEMORY.history, BACKLOG):
        assert None not in astuple(value)  # type: ignore[arg-type]
    assert json.loads(CONFIG_TEXT).keys() == json.loads(group_config.dumps(CONFIG)).keys()


def test_an_item_of_the_job_table_is_read() -> None:
    assert job_item.parse(JOB_ITEM) == JOB
    assert job_item.parse({**JOB_ITEM, "imagenet@2": {"S": "snap-1"}}) == JOB
    assert job_item.parse({}) == job_item.JobItem()
    assert codec.attribute(JOB.host_faults) == JOB_ITEM["hostFaults"]
    assert codec.attribute(JOB.retries) == JOB_ITEM["retries"]
