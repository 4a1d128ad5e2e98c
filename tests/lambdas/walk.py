"""A random walk over whole passes of the real handler on ``FaultyAws``.

``make test`` takes some 20,000 steps, ``make bench-walk`` 200,000. Invariants in every state:

- AWS never selects the instances to terminate, and no request exceeds the maximum
(``FaultyAws`` checks them);
- the last ready worker of a group is never terminated;
- a notice is handled at most 60 s after it could be known;
- an error in one group does not affect the others;
- a fleet is not modified while it is being modified;
- a working instance is replaced only after its successor is ready, and one at a time in a small group.

A concurrent execution sometimes saves first, with a pass of its own or with an earlier observation.
Only one kind of call fails at a time: with two, the queue among them, the 60 s cannot be guaranteed.
A health checker that is sometimes wrong, late or malformed requests replacements of working, sick, terminated
and foreign instances. The service has on-premises hosts that join, leave and miss heartbeats. With
``deadline`` the first group is a job with a deadline, whose progress jumps, stalls and decreases. A pass
takes no time, and a group lists its members without delay: with a delay only protection from scale-in
prevents AWS from selecting instances.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from unittest import mock

from contracts.group import replacement_requests
from contracts.group.replacement_requests import ReplacementRequest
from contracts.registry.item import Progress
from lambdas.aws.capacity.controller import Controller, GroupOutcome, build
from lambdas.aws.passes import Reporting
from lambdas.core.capacity import memory as codec
from lambdas.core.capacity.availability import Decision
from lambdas.core.model import TerminateInstances
from lambdas.handlers import controller as entry
from tests.fakes.aws import ROOT, config
from tests.fakes.faults import Box, FaultyAws, Pool
from tests.lambdas.single_group import CONTROLLER_CONFIG

STEPS_OF_A_WORLD: Final = 500
UNKNOWN_SECONDS: Final = 60.0
START: Final = 1_000_000.0
_LONGEST_STEP: Final = 10.0
MINUTE: Final = json.dumps({"detail-type": "Scheduled Event", "source": "aws.events"})
CALLS: Final = (
    *("get_parameters_by_path", "get_item", "put_item", "batch_get_item", "send_message"),
    *("describe_auto_scaling_groups", "describe_instances", "describe_scaling_activities"),
    *("describe_spot_fleet_requests", "describe_spot_fleet_instances", "describe_spot_instance_requests"),
    *("describe_spot_fleet_request_history", "set_desired_capacity", "modify_spot_fleet_request"),
    *("set_instance_protection", "terminate_instance_in_auto_scaling_group", "terminate_instances"),
)
HOSTS: Final = tuple(f"host-{number}" for number in range(4))
GROUPS: Final = {"service": "mixed-asg", "fleet": "spot-fleet"}


class Remaining:
    """The part of Lambda's context object that the handler uses."""

    def get_remaining_time_in_millis(self) -> int:
        """Return a minute: a pass takes no time here."""
        return 60_000


@dataclass(slots=True)
class Walk:
    """A simulated AWS and its controller; ``passes`` counts the controller's runs."""

    aws: FaultyAws
    draw: random.Random
    controller: Controller
    outcomes: list[GroupOutcome] = field(default_factory=list)
    knowable: dict[str, tuple[str, float]] = field(default_factory=dict)
    health: random.Random = field(default_factory=random.Random)
    ended: dict[str, dict[str, float]] = field(default_factory=dict)
    next_minute: float = START
    passes: int = 0

    def step(self) -> None:
        """Inject events, advance the time, and run the controller if a message is due."""
        self._inject_fault()
        self._request_replacements()
        self._update_on_premises_hosts()
        self.aws.pass_time(self.draw.choice((1.0, 5.0, _LONGEST_STEP)))
        if self.aws.now >= self.next_minute:
            self.next_minute += 60
            self.aws.queue.append((self.aws.now, MINUTE))
        self._deliver()
        self._check_notices()

    def _inject_fault(self) -> None:
        boxes = [b for p in self.aws.pools.values() for b in p.boxes if b.ended is None]
        match self.draw.randrange(12):
            case 0 | 1 if boxes:
                self._notice(self.draw.choice(boxes))
            case 2 if boxes:
                self.draw.choice(boxes).ended = self.aws.now  # without a notice
            case 3 | 4:
                pool = self.draw.choice(list(self.aws.pools.values()))
                pool.has_capacity = not pool.has_capacity
            case 5:
                name = self.draw.choice(list(GROUPS))
                self.aws.parameters[f"{ROOT}/{name}/target"] = str(self.draw.randint(1, 4))
            case 6 | 7:
                self.aws.throttled = Counter({self.draw.choice(CALLS): self.draw.randint(1, 2)})
            case 8:
                self.aws.blind = not self.aws.blind

    def _request_replacements(self) -> None:
        """Let the health checker request replacements, valid or malformed, or do nothing."""
        if self.health.random() > 0.1:
            return
        name = self.health.choice(list(GROUPS))
        boxes = [b for p in self.aws.pools.values() for b in p.boxes if p.group == name]
        unhealthy = self.health.sample(boxes, min(len(boxes), self.health.randint(0, 3)))
        for box in unhealthy:
            box.sick |= self.health.random() < 0.3
        at = int(self.aws.now) - self.health.choice((0, 60, 600, 86_400))
        requests = [ReplacementRequest(box.id, at, "stuck" if box.sick else "xid") for box in unhealthy]
        other = [b.id for p in self.aws.pools.values() for b in p.boxes if p.group != name]
        requests += [
            ReplacementRequest(i, at, "xid") for i in ("i-gone", *other[:1]) if self.health.random() < 0.2
        ]
        text = replacement_requests.dump(requests) if self.health.random() < 0.95 else "{"
        self.aws.parameters[f"{ROOT}/{name}/replacements"] = text

    def _update_on_premises_hosts(self) -> None:
        """Let on-premises hosts send heartbeats, join, leave, or all leave at once."""
        hosts = self.aws.hosts.setdefault("service", {})
        for host in hosts:
            if self.health.random() < 0.3:
                hosts[host] = self.aws.now
        match self.health.randrange(120):
            case 0:
                hosts.clear()
            case 1 | 2 | 3 if len(hosts) < 4:
                hosts[next(host for host in HOSTS if host not in hosts)] = self.aws.now
            case 4 if hosts:
                del hosts[self.health.choice(list(hosts))]

    def _notice(self, box: Box) -> None:
        if not box.spot or box.notice is not None or box.ending is not None:
            return
        self.aws.notice(box)
        # The Spot request shows it at once; the event arrives late, twice, or never.
        self.knowable[box.id] = (box.side.group, self.aws.now)
        event = {
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "time": _iso(self.aws.now),
            "detail": {"instance-id": box.id},
        }
        for _ in range(self.draw.choice((0, 1, 1, 2))):
            self.aws.queue.append((self.aws.now + self.draw.choice((0, 10, 100)), json.dumps(event)))

    def _deliver(self) -> None:
        due = [body for at, body in self.aws.queue if at <= self.aws.now]
        if not due:
            return
        self.aws.queue = [(at, body) for at, body in self.aws.queue if at > self.aws.now]
        records = [{"messageId": str(n), "receiptHandle": str(n), "body": body} for n, body in enumerate(due)]
        self.passes += 1
        self.outcomes.clear()
        self.aws.hidden_for.clear()
        try:
            failed = entry.handler({"Records": records}, Remaining())["batchItemFailures"]
            handles = [item["itemIdentifier"] for item in failed]
            self._check_groups()
        except Exception as error:  # Lambda returns the whole batch
            if "Throttling" not in str(error):
                raise
            handles = [record["receiptHandle"] for record in records]
        for handle in handles:
            back = self.aws.now + self.aws.hidden_for.get(handle, 360)
            self.aws.queue.append((back, due[int(handle)]))

    def _check_groups(self) -> None:
        by_group = {outcome.group: outcome for outcome in self.outcomes}
        if not {"broken", *GROUPS} <= by_group.keys():
            self.aws.violations.append(f"at {self.aws.now:.0f}: only {sorted(by_group)} were reconciled")
        for name in GROUPS:
            error = by_group[name].error if name in by_group else None
            if error is not None and not _is_injected(error):
                self.aws.violations.append(f"at {self.aws.now:.0f}: {name}: {error!r}")
            decision = by_group[name].decision if name in by_group else None
            if decision is not None:
                self._check_replacements(name, decision)

    def _check_replacements(self, name: str, decision: Decision) -> None:
        """Check that a small group has at most one replacement in a quarter of an hour."""
        ended = self.ended.setdefault(name, {})
        for action in decision.actions:
            if isinstance(action, TerminateInstances):
                ended |= dict.fromkeys(decision.state.replacements.keys() & action.instance_ids, self.aws.now)
        boxes = {b.id: b for p in self.aws.pools.values() for b in p.boxes}
        for instance_id, at in list(ended.items()):
            box = boxes.get(instance_id)
            is_running = box is not None and box.ending is None and box.ended is None
            if is_running or self.aws.now - at >= codec.REPLACEMENT_WINDOW_SECONDS:
                del ended[instance_id]  # the call failed, or the window has passed
        if len(ended) > 1:
            self.aws.violations.append(
                f"at {self.aws.now:.0f}: {name}: {sorted(ended)} replaced in one window"
            )

    def _check_notices(self) -> None:
        for instance_id, (group, since) in list(self.knowable.items()):
            alive = any(
                b.id == instance_id and b.ended is None for p in self.aws.pools.values() for b in p.boxes
            )
            item = self.aws.memory.get(group)
            remembered = codec.parse(item["memory"]["S"]) if item else codec.Memory()
            if (
                not alive
                or instance_id in remembered.termination_deadlines
                or instance_id in remembered.termination_requests
            ):
                del self.knowable[instance_id]
            elif self.aws.now - since > UNKNOWN_SECONDS + _LONGEST_STEP:
                self.aws.violations.append(
                    f"at {self.aws.now:.0f}: the notice of {instance_id} is unhandled since {since:.0f}"
                )
                del self.knowable[instance_id]


def _is_injected(error: Exception) -> bool:
    return any(word in repr(error) for word in ("Throttling", "ConflictError"))


def _iso(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _random_progress(draw: random.Random, now: float) -> Progress:
    """Return a progress report with any step, time and rate."""
    steps = draw.choice((10, 1000, 10**9))
    rate = draw.choice((0.0, 1e-9, 0.01, 1.0, 1e6))
    reported_at = now - draw.choice((0, 10, 300, 86_400))
    first_reported_at = reported_at - draw.choice((0, 700, 7200))
    return Progress(
        draw.randint(0, steps), steps, reported_at, first_reported_at, rate, rate * draw.choice((1, 2, 100))
    )


def world(seed: int, *, deadline: bool = False) -> Walk:
    """Return two groups, and a third with invalid parameters."""
    draw = random.Random(seed)
    aws = FaultyAws(draw=draw, now=START)
    for name, kind in GROUPS.items():
        fleet = kind == "spot-fleet"
        aws.maximum[name] = draw.randint(4, 9)
        changes = {
            "drainSeconds": draw.choice((0, 30)),
            "policy": {"name": draw.choice(("expected-cost", "ready-handover")), "parameters": {}},
        }
        if deadline and not fleet:
            changes |= {"deadline": START + draw.choice((-60, 1200, 7200, 86_400)), "run": "r1"}
            aws.progress = lambda _: _random_progress(draw, aws.now) if draw.random() < 0.8 else None
        changes |= {"onPremises": int(name == "service"), "onPremisesHosts": dict.fromkeys(HOSTS, 1)}
        groups = {"primary": f"{name}-primary", "fallback": f"{name}-fallback"}
        aws.parameters[f"{ROOT}/{name}/config"] = config(
            kind=kind, max=aws.maximum[name], breakBeforeMake=False, **groups, **changes
        )
        aws.parameters[f"{ROOT}/{name}/target"] = str(draw.randint(1, 4))
        aws.pools[f"{name}-primary"] = Pool(f"{name}-primary", name, is_spot=True, is_fleet=fleet)
        aws.pools[f"{name}-fallback"] = Pool(f"{name}-fallback", name, is_spot=False)
    aws.parameters[f"{ROOT}/broken/target"] = "4"
    controller = build(aws.client, CONTROLLER_CONFIG, lambda: aws.now)
    aws.rival = controller.run
    return Walk(aws, draw, controller, health=random.Random(-seed - 1))


@contextmanager
def handled_by(walk: Walk) -> Iterator[None]:
    """Make the handler use this walk's controller, and collect its outcomes instead of log lines."""
    with (
        mock.patch.object(entry, "_controller", return_value=walk.controller),
        mock.patch.object(entry, "reporting", return_value=Reporting(walk.outcomes.append)),
        mock.patch.object(entry.logger, "warning"),
    ):
        yield


def run(steps: int, seed: int = 0, *, deadline: bool = False) -> tuple[int, list[str]]:
    """Take ``steps`` steps, with a new world every ``STEPS_OF_A_WORLD``; return passes and violations."""
    passes, violations = 0, []
    for number in range(-(-steps // STEPS_OF_A_WORLD)):
        walk = world(seed + number, deadline=deadline)
        with handled_by(walk):
            for _ in range(min(STEPS_OF_A_WORLD, steps - number * STEPS_OF_A_WORLD)):
                walk.step()
        passes += walk.passes
        violations += [f"world {seed + number}, {line}" for line in walk.aws.violations]
    return passes, violations
