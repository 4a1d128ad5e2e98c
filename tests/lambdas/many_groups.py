"""A stack with many groups on a fake clock: each call takes its time, and AWS's published rates hold."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from lambdas.aws.capacity.controller import PASS_SECONDS, Controller, GroupOutcome, build
from lambdas.aws.passes import Reporting
from tests.fakes.aws import NOW, ROOT, FakeAws
from tests.lambdas.single_group import CONTROLLER_CONFIG, activity

SECONDS = {
    "get_parameters_by_path": 0.02,
    "get_item": 0.006,
    "put_item": 0.008,
    "batch_get_item": 0.01,
    "describe_auto_scaling_groups": 0.06,
    "describe_scaling_activities": 0.06,
    "describe_instances": 0.12,
    "describe_spot_instance_requests": 0.10,
    "describe_spot_price_history": 0.15,
    "send_message": 0.01,
}
OTHER_SECONDS = 0.05
PUBLISHED = {
    "get_parameters_by_path": (40, 40.0),
    "describe_instances": (100, 20.0),
    "describe_spot_instance_requests": (100, 20.0),
    "describe_spot_price_history": (100, 20.0),
}
"""Bucket and calls a second of an account in a region.

Sources: Systems Manager endpoints and quotas (default throughput); EC2 developer guide, "Request throttling
for the Amazon EC2 API" (non-mutating actions). Auto Scaling has one bucket, of unpublished size.
"""
CPU_SECONDS = 0.006
"""Of a group and pass: at most 1.5 ms here (``make bench-checker``), on 512 MiB or 0.29 of a vCPU.

Source: Lambda guide, "Configure Lambda function memory": one vCPU at 1,769 MB.
"""


@dataclass
class SlowAws(FakeAws):
    """``FakeAws`` that takes ``factor`` times the usual seconds; a call above a rate waits for its turn."""

    factor: float = 1.0
    tokens: dict[str, tuple[float, float]] = field(default_factory=dict)

    def _called(self, name: str) -> None:
        self.now += SECONDS.get(name, OTHER_SECONDS) * self.factor
        if name in PUBLISHED:
            bucket, rate = PUBLISHED[name]
            left, at = self.tokens.get(name, (float(bucket), self.now))
            left = min(bucket, left + (self.now - at) * rate) - 1
            if left < 0:
                self.now -= left / rate
                left = 0.0
            self.tokens[name] = (left, self.now)
        super()._called(name)

    def _list_describe_auto_scaling_groups(self, AutoScalingGroupNames: list[str], **more: Any) -> Any:  # noqa: N803
        self.now += CPU_SECONDS * len(AutoScalingGroupNames) / 2
        return super()._list_describe_auto_scaling_groups(AutoScalingGroupNames, **more)

    def add(self, size: int, group: str = "g", age: float = 7200.0) -> list[str]:
        """Add a job's group with the leaves that the program declares."""
        self.add_group(f"{group}-primary", size)
        self.add_group(f"{group}-fallback")
        self.set(group, control="{}", finished="none")
        ids = super().add(size, group, age)
        for leaf in ("health", "replacements"):
            del self.parameters[parameter(group, leaf)]
        return ids


def stack(groups: int, size: int, factor: float = 1.0, *, lacks: bool = False) -> SlowAws:
    """Return a stack; ``lacks``: each group lacks capacity and its launches fail."""
    aws = SlowAws(factor=factor)
    for number in range(groups):
        aws.add(size, f"g{number:04}")
    if lacks:
        for name, group in aws.groups.items():
            group["DesiredCapacity"] += name.endswith("primary")
            aws.activities[name] = [activity("Failed", "UnfulfillableCapacity")]
    return aws


def controller(aws: SlowAws) -> Controller:
    return build(aws.client, CONTROLLER_CONFIG, lambda: aws.now)


@dataclass
class Played:
    """What some minutes brought: longest time of a group without a decision, calls by name."""

    longest: float
    calls: Counter[str]
    decided: list[int]
    undecided: list[float]


def play(aws: SlowAws, minutes: int, seconds: float = PASS_SECONDS) -> Played:
    """Run a pass each minute; the first is not judged: it learns the groups."""
    one = controller(aws)
    names = {name.split("/")[4] for name in aws.parameters}
    undecided: list[float] = []
    start, last, decided = aws.now, dict.fromkeys(names, aws.now), []
    longest = 0.0
    calls: Counter[str] = Counter()
    for minute in range(minutes):
        aws.now = max(aws.now, start + 60 * minute)
        aws.send_heartbeats()
        aws.calls.clear()

        def note(outcome: GroupOutcome) -> None:
            nonlocal longest
            assert outcome.error is None, outcome.error
            longest = max(longest, aws.now - last[outcome.group])
            last[outcome.group] = aws.now

        decided.append(len(one.run(seconds=seconds, reporting=Reporting(note, undecided.append))))
        assert aws.now <= start + 60 * minute + seconds + 5
        calls = Counter(aws.calls)
    longest = max([longest, *(aws.now - at for at in last.values())])
    return Played(longest, calls, decided, undecided)


def parameter(group: str, leaf: str) -> str:
    return f"{ROOT}/{group}/{leaf}"


def limits(calls: Counter[str]) -> dict[str, Any]:
    """Return the calls of a minute with the published limit of a minute, by name."""
    rates = {name: 60 * rate for name, (_, rate) in PUBLISHED.items()}
    return {name: (count, rates.get(name, "not published")) for name, count in sorted(calls.items())}


__all__ = ("NOW", "Played", "SlowAws", "controller", "limits", "parameter", "play", "stack")
