"""When each alarm of the sample stacks rings: to be judged by what AWS and our code say of its metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.infra import training
from tests.infra.declared import ROOT, Run, shipped
from tests.infra.runbook import heading

SAMPLES: Final = sorted(path.name.split(".")[1] for path in ROOT.glob("Pulumi.*.yaml"))
assert len(SAMPLES) == 10


class Rings(NamedTuple):
    """It rings where so many of the newest periods are beyond; ``silent``: a period without data is, too."""

    statistic: str
    metric: str
    beyond: str
    of_periods: tuple[int, int]
    seconds: int
    silent: bool = False


# AWS/Lambda, /SQS and /AmazonMQ: their user guides, "metrics"; the rest is what functions and agents send.
# A gauge that is sent each minute rings after so many minutes: Minimum, every period. What is counted when it
# happens, and is otherwise not sent, rings at once: Sum, and no data is no trouble.
ALARMS: Final[dict[str, Rings]] = {
    # Functions are invoked each minute: no invocation in five minutes is sent as no data.
    "controller-silent": Rings("Sum", "AWS/Lambda Invocations", "< 1", (1, 1), 300, silent=True),
    "health-silent": Rings("Sum", "AWS/Lambda Invocations", "< 1", (1, 1), 300, silent=True),
    "scaler-silent": Rings("Sum", "AWS/Lambda Invocations", "< 1", (1, 1), 300, silent=True),
    # A run that fails is tried again: three of five minutes are a state.
    "controller-errors": Rings("Sum", "AWS/Lambda Errors", ">= 1", (3, 5), 60),
    "health-errors": Rings("Sum", "AWS/Lambda Errors", ">= 1", (3, 5), 60),
    "scaler-errors": Rings("Sum", "AWS/Lambda Errors", ">= 1", (3, 5), 60),
    "controller-throttles": Rings("Sum", "AWS/Lambda Throttles", ">= 1", (3, 5), 60),
    "<group>-unkept": Rings("Sum", "gpu-spot ControllerErrors", ">= 1", (3, 5), 60),
    "<group>-unchecked": Rings("Sum", "gpu-spot HealthErrors", ">= 1", (3, 5), 60),
    "<group>-unscaled": Rings("Sum", "gpu-spot ScalingErrors", ">= 1", (3, 5), 60),
    # Seconds, and messages that are neither hidden nor delayed.
    "wake-ups-old": Rings("Maximum", "AWS/SQS ApproximateAgeOfOldestMessage", ">= 300", (1, 1), 60),
    "dead-letters": Rings("Maximum", "AWS/SQS ApproximateNumberOfMessagesVisible", ">= 1", (1, 1), 60),
    "<group>-queue-dead": Rings("Maximum", "AWS/SQS ApproximateNumberOfMessagesVisible", ">= 1", (1, 1), 60),
    # How many instances are missing, each minute: standstillMinutes of jobs and shared hosts, whose instance
    # boots and moves its volume, shortageMinutes of services.
    "<group>-shortage": Rings("Minimum", "gpu-spot Shortage", ">= 1", (60, 60), 60),
    "asr-shortage": Rings("Minimum", "gpu-spot Shortage", ">= 1", (10, 10), 60),
    "inference-shortage": Rings("Minimum", "gpu-spot Shortage", ">= 1", (10, 10), 60),
    "ocr-shortage": Rings("Minimum", "gpu-spot Shortage", ">= 1", (10, 10), 60),
    "prod/inference-shortage": Rings("Minimum", "gpu-spot Shortage", ">= 1", (5, 5), 60),
    # For onDemandMinutes more than onDemandCeiling: by default the mix's own share, and half of its spot.
    "<group>-on-demand": Rings("Minimum", "gpu-spot OnDemand", ">= 2", (12, 12), 300),
    "inference-on-demand": Rings("Minimum", "gpu-spot OnDemand", ">= 5", (12, 12), 300),
    "ocr-on-demand": Rings("Minimum", "gpu-spot OnDemand", ">= 3", (12, 12), 300),
    "prod/inference-on-demand": Rings("Minimum", "gpu-spot OnDemand", ">= 10", (12, 12), 300),
    "<group>-above-max": Rings("Minimum", "gpu-spot AboveMaximum", ">= 1", (10, 10), 60),
    "<group>-half-seen": Rings("Minimum", "gpu-spot Troubles", ">= 1", (10, 10), 60),
    # Causes that last, and say so each minute: five minutes bridge a pass that was left out.
    "<group>-refused": Rings("Maximum", "gpu-spot AlarmCauses", ">= 1", (1, 1), 300),
    "<group>-unwell": Rings("Maximum", "gpu-spot HealthIncidents", ">= 1", (1, 1), 300),
    "<job>-deadline": Rings("Maximum", "gpu-spot DeadlineTroubles", ">= 1", (1, 1), 60),
    "<job>-budget": Rings("Maximum", "gpu-spot BudgetTroubles", ">= 1", (1, 1), 60),
    # What an agent sends once, when it happens.
    "<group>-boot": Rings("Sum", "gpu-spot/instances BootFailures", ">= 1", (1, 1), 300),
    "<job>-failed": Rings("Sum", "gpu-spot/instances JobFailures", ">= 1", (1, 1), 300),
    "<job>-stalled": Rings("Sum", "gpu-spot/instances JobStalls", ">= 1", (1, 1), 300),
    "<job>-host-fault": Rings("Sum", "gpu-spot/instances HostFaults", ">= 1", (1, 1), 300),
    # A driver that does not answer once has lost nothing; per cent of the volume.
    "<group>-gpu-lost": Rings("Maximum", "gpu-spot/instances GpusLost", ">= 1", (2, 5), 60),
    "<job>-volume-full": Rings("Minimum", "gpu-spot/instances DataVolumeFree", "< 10", (1, 1), 300),
    # The scaler sends 0 or 1 each minute; one good minute ends it.
    "<group>-load-unknown": Rings("Maximum", "gpu-spot ScalingBlind", ">= 1", (10, 10), 60),
    "<group>-pace-unknown": Rings("Maximum", "gpu-spot ScalingStale", ">= 1", (10, 10), 60),
    "<group>-at-maximum": Rings("Maximum", "gpu-spot ScalingCeiling", ">= 1", (15, 15), 60),
    # RabbitMQ: no number is below 0, so only silence rings; memory and free disk in % of their limits.
    "<group>-queue-down": Rings("Minimum", "AWS/AmazonMQ ConnectionCount", "< 0", (10, 10), 60, silent=True),
    "<group>-queue-memory": Rings(
        "Maximum", "AWS/AmazonMQ 100 * RabbitMQMemUsed / RabbitMQMemLimit", ">= 80", (5, 5), 60
    ),
    "<group>-queue-disk": Rings(
        "Minimum", "AWS/AmazonMQ 100 * RabbitMQDiskFree / RabbitMQDiskFreeLimit", "< 200", (5, 5), 60
    ),
    # The queue watcher: seconds, tasks (four fifths of those that may wait), workers that read.
    "<group>-queue-unseen": Rings("Minimum", "gpu-spot QueueUnseen", ">= 1", (10, 10), 60, silent=True),
    "<group>-queue-old": Rings("Maximum", "gpu-spot QueueOldest", ">= 900", (5, 5), 60),
    "<group>-queue-deep": Rings("Maximum", "gpu-spot QueueReady", ">= 80000", (5, 5), 60),
    "<group>-queue-unread": Rings(
        "Maximum", "gpu-spot IF(QueueReady > 0, QueueReaders, 1)", "< 1", (15, 15), 60
    ),
    # No number is below 0, so only silence rings; three restarts in two of three five minutes.
    "<host>-<tenant>-missing": Rings(
        "Maximum", "gpu-spot/instances TenantCpuSeconds", "< 0", (4, 4), 300, silent=True
    ),
    "<host>-<tenant>-restarting": Rings("Sum", "gpu-spot/instances TenantRestarts", ">= 3", (2, 3), 300),
}


def of(alarm: dict[str, Any]) -> Rings:
    """Return an alarm as it is declared; metric math with the metrics in the place of their ids."""
    queries = alarm.get("metricQueries")
    if queries:
        value, other, result = queries
        one = value["metric"]
        assert [query.get("returnData", False) for query in queries] == [False, False, True]
        assert other["metric"] == {**one, "metricName": other["metric"]["metricName"]}
        said = result["expression"].replace("value", one["metricName"])
        said = said.replace("other", other["metric"]["metricName"])
        name, statistic, seconds = f"{one['namespace']} {said}", one["stat"], one["period"]
    else:
        name, statistic = f"{alarm['namespace']} {alarm['metricName']}", alarm["statistic"]
        seconds = alarm["period"]
    beyond = {"GreaterThanOrEqualToThreshold": ">=", "LessThanThreshold": "<"}[alarm["comparisonOperator"]]
    silent = {"breaching": True, "notBreaching": False}[alarm["treatMissingData"]]
    needed, periods = int(alarm["datapointsToAlarm"]), int(alarm["evaluationPeriods"])
    return Rings(statistic, name, f"{beyond} {alarm['threshold']:g}", (needed, periods), int(seconds), silent)


def row(stack: str, alarm: str) -> str:
    """Return the most particular row of an alarm."""
    return next(key for key in (f"{stack}/{alarm}", alarm, heading(alarm)) if key in ALARMS)


def declared(run: Run) -> dict[str, dict[str, Any]]:
    return {name.removeprefix(f"gpu-spot-{run.stack}-"): one for name, one in run.of("MetricAlarm").items()}


@pytest.mark.parametrize("stack", SAMPLES)
def test_when_the_alarms_of_a_sample_stack_ring(stack: str) -> None:
    found = {name: of(alarm) for name, alarm in declared(shipped(stack)).items()}
    assert found == {name: ALARMS[row(stack, name)] for name in found}


def test_when_the_alarms_of_a_deadline_and_a_budget_ring(tmp_path: Path) -> None:
    alarms = declared(training.stack(tmp_path, deadline="2027-03-01T18:00:00+01:00", budget=50))
    assert of(alarms["resnet-deadline"]) == ALARMS["<job>-deadline"]
    assert of(alarms["resnet-budget"]) == ALARMS["<job>-budget"]


def test_every_row_is_of_an_alarm_that_is_declared() -> None:
    used = {row(stack, name) for stack in SAMPLES for name in declared(shipped(stack))}
    assert used | {"<job>-deadline", "<job>-budget"} == ALARMS.keys()
