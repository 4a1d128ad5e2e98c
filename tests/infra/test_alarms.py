"""Metric, threshold and periods of every alarm of the sample stacks."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pytest

from tests.infra import training
from tests.infra.declared import ROOT, heading, shipped

SAMPLES: Final = sorted(path.name.split(".")[1] for path in (ROOT / "stacks").glob("Pulumi.*.yaml"))
assert len(SAMPLES) == 10


class Condition(NamedTuple):
    """In alarm if so many of the newest periods breach; ``missing_breaches``: periods without data do."""

    statistic: str
    metric: str
    threshold: str
    datapoints: tuple[int, int]
    period_seconds: int
    missing_breaches: bool = False


# Source of AWS/Lambda, AWS/SQS and AWS/AmazonMQ: their user guides, "metrics". Functions and agents emit the
# rest. A gauge emitted each minute: Minimum, all periods. A count emitted only when something happens: Sum,
# one period, missing data does not breach.
ALARMS: Final[dict[str, Condition]] = {
    # Functions are invoked each minute; without invocations there is no data.
    **dict.fromkeys(
        [f"{function}-not-running" for function in ("broker-users", "controller", "health", "scaler")],
        Condition("Sum", "AWS/Lambda Invocations", "< 1", (1, 1), 300, missing_breaches=True),
    ),
    # A failed invocation is repeated in the next minute: three of five minutes must fail.
    **dict.fromkeys(
        [f"{function}-errors" for function in ("broker-users", "controller", "health", "scaler")],
        Condition("Sum", "AWS/Lambda Errors", ">= 1", (3, 5), 60),
    ),
    # Seconds since the oldest decision of a group, each minute.
    **dict.fromkeys(
        [f"{function}-late" for function in ("controller", "health", "scaler")],
        Condition("Maximum", "gpu-spot UndecidedSeconds", ">= 300", (1, 1), 300),
    ),
    "controller-throttles": Condition("Sum", "AWS/Lambda Throttles", ">= 1", (3, 5), 60),
    "<group>-controller-errors": Condition("Sum", "gpu-spot ControllerErrors", ">= 1", (3, 5), 60),
    # Percent of all requests, emitted each minute while there are any: the scaler plans for at most one late
    # request in ten, and a boot takes less than 15 minutes.
    "<group>-requests-refused": Condition("Minimum", "gpu-spot RequestsRefusedShare", ">= 10", (15, 15), 60),
    "<group>-health-check-errors": Condition("Sum", "gpu-spot HealthErrors", ">= 1", (3, 5), 60),
    "<group>-scaler-errors": Condition("Sum", "gpu-spot ScalingErrors", ">= 1", (3, 5), 60),
    # Seconds; messages that are neither in flight nor delayed.
    "wake-ups-old": Condition("Maximum", "AWS/SQS ApproximateAgeOfOldestMessage", ">= 300", (1, 1), 60),
    "dead-letters": Condition("Maximum", "AWS/SQS ApproximateNumberOfMessagesVisible", ">= 1", (1, 1), 60),
    "<group>-queue-dead-letters": Condition(
        "Maximum", "AWS/SQS ApproximateNumberOfMessagesVisible", ">= 1", (1, 1), 60
    ),
    # Missing instances, each minute, for stallMinutes (jobs and shared hosts, which boot and move a volume)
    # or shortageMinutes (services).
    "<group>-shortage": Condition("Minimum", "gpu-spot Shortage", ">= 1", (60, 60), 60),
    **dict.fromkeys(
        ("asr-shortage", "inference-shortage", "ocr-shortage", "pages-shortage"),
        Condition("Minimum", "gpu-spot Shortage", ">= 1", (10, 10), 60),
    ),
    "prod/inference-shortage": Condition("Minimum", "gpu-spot Shortage", ">= 1", (5, 5), 60),
    # More than onDemandCeiling for onDemandMinutes; default: the On-Demand share and half of the Spot share.
    "<group>-on-demand": Condition("Minimum", "gpu-spot OnDemand", ">= 2", (12, 12), 300),
    "inference-on-demand": Condition("Minimum", "gpu-spot OnDemand", ">= 5", (12, 12), 300),
    "ocr-on-demand": Condition("Minimum", "gpu-spot OnDemand", ">= 3", (12, 12), 300),
    "prod/inference-on-demand": Condition("Minimum", "gpu-spot OnDemand", ">= 10", (12, 12), 300),
    # 0 or 1, emitted each minute, of a cause that lasts; a budget must be reached for ten minutes.
    "<group>-on-demand-only": Condition("Maximum", "gpu-spot OnDemandOnly", ">= 1", (1, 1), 300),
    "<group>-above-max": Condition("Minimum", "gpu-spot AboveMaximum", ">= 1", (10, 10), 60),
    "<group>-incomplete-observation": Condition("Minimum", "gpu-spot ReadErrors", ">= 1", (10, 10), 60),
    # Lasting causes, emitted each minute: five minutes bridge a skipped invocation.
    "<group>-controller-alarm": Condition("Maximum", "gpu-spot AlarmCauses", ">= 1", (1, 1), 300),
    "<group>-unhealthy": Condition("Maximum", "gpu-spot HealthIncidents", ">= 1", (1, 1), 300),
    "<job>-deadline": Condition("Maximum", "gpu-spot DeadlineAtRisk", ">= 1", (1, 1), 60),
    "<job>-budget": Condition("Maximum", "gpu-spot BudgetAtRisk", ">= 1", (1, 1), 60),
    # Events, emitted once by an agent.
    "<group>-boot": Condition("Sum", "gpu-spot/instances BootFailures", ">= 1", (1, 1), 300),
    "eks/resnet-failed": Condition("Sum", "gpu-spot/kubernetes eks/resnet/failures", ">= 1", (1, 1), 300),
    "eks/resnet-not-started": Condition(
        "Sum", "gpu-spot/kubernetes eks/resnet/starts-failed", ">= 1", (1, 1), 300
    ),
    "eks/resnet-waits": Condition("Sum", "gpu-spot/kubernetes eks/resnet/waits", ">= 3", (1, 1), 10_800),
    "<job>-failed": Condition("Sum", "gpu-spot/instances JobFailures", ">= 1", (1, 1), 300),
    "<job>-stalled": Condition("Sum", "gpu-spot/instances JobStalls", ">= 1", (1, 1), 300),
    "<job>-host-fault": Condition("Sum", "gpu-spot/instances HostFaults", ">= 1", (1, 1), 300),
    # One failed query of the driver does not breach. The volume in percent.
    "<group>-gpu-lost": Condition("Maximum", "gpu-spot/instances GpusLost", ">= 1", (2, 5), 60),
    "<job>-volume-full": Condition("Minimum", "gpu-spot/instances DataVolumeFree", "< 10", (1, 1), 300),
    # 0 or 1, emitted each minute; one 0 ends the alarm.
    "<group>-load-unknown": Condition("Maximum", "gpu-spot ScalingLoadUnknown", ">= 1", (5, 5), 60),
    "<group>-throughput-unknown": Condition(
        "Maximum", "gpu-spot ScalingThroughputUnknown", ">= 1", (10, 10), 60
    ),
    "<group>-at-maximum": Condition("Maximum", "gpu-spot ScalingAtMaximum", ">= 1", (15, 15), 60),
    # RabbitMQ. A count is never below 0: only missing data breaches. Memory and disk in % of their limits.
    "<group>-queue-down": Condition(
        "Minimum", "AWS/AmazonMQ ConnectionCount", "< 0", (10, 10), 60, missing_breaches=True
    ),
    "<group>-queue-memory": Condition(
        "Maximum", "AWS/AmazonMQ 100 * RabbitMQMemUsed / RabbitMQMemLimit", ">= 80", (5, 5), 60
    ),
    "<group>-queue-disk": Condition(
        "Minimum", "AWS/AmazonMQ 100 * RabbitMQDiskFree / RabbitMQDiskFreeLimit", "< 200", (5, 5), 60
    ),
    # The queue watcher: seconds, messages (four fifths of the maximum), consumers.
    "<group>-queue-unreachable": Condition(
        "Minimum", "gpu-spot QueueUnreachable", ">= 1", (10, 10), 60, missing_breaches=True
    ),
    "<group>-queue-message-age": Condition("Maximum", "gpu-spot QueueOldestMessageAge", ">= 900", (5, 5), 60),
    "<group>-queue-length": Condition("Maximum", "gpu-spot QueueReady", ">= 80000", (5, 5), 60),
    "<group>-queue-no-consumers": Condition(
        "Maximum", "gpu-spot IF(QueueReady > 0, QueueConsumers, 1)", "< 1", (15, 15), 60
    ),
    # A count is never below 0: only missing data breaches. Three restarts in two of three periods.
    "<host>-restarting": Condition("Sum", "gpu-spot/instances TenantRestarts", ">= 3", (2, 3), 300),
    "<host>-<tenant>-waiting": Condition("Minimum", "gpu-spot/instances TenantWaiting", ">= 1", (4, 4), 300),
}


def condition(alarm: dict[str, Any]) -> Condition:
    """Return an alarm's condition; in metric math the metrics replace their ids."""
    queries = alarm.get("metricQueries")
    if queries:
        value, other, result = queries
        metric = value["metric"]
        assert [query.get("returnData", False) for query in queries] == [False, False, True]
        assert other["metric"] == {**metric, "metricName": other["metric"]["metricName"]}
        expression = result["expression"].replace("value", metric["metricName"])
        expression = expression.replace("other", other["metric"]["metricName"])
        name, statistic, seconds = f"{metric['namespace']} {expression}", metric["stat"], metric["period"]
    else:
        name, statistic = f"{alarm['namespace']} {alarm['metricName']}", alarm["statistic"]
        seconds = alarm["period"]
    operator = {"GreaterThanOrEqualToThreshold": ">=", "LessThanThreshold": "<"}[alarm["comparisonOperator"]]
    missing_breaches = {"breaching": True, "notBreaching": False}[alarm["treatMissingData"]]
    datapoints = int(alarm["datapointsToAlarm"]), int(alarm["evaluationPeriods"])
    threshold = f"{operator} {alarm['threshold']:g}"
    return Condition(statistic, name, threshold, datapoints, int(seconds), missing_breaches)


def row(stack: str, alarm: str) -> str:
    """Return the most specific key of ``ALARMS`` for an alarm."""
    return next(key for key in (f"{stack}/{alarm}", alarm, heading(alarm)) if key in ALARMS)


@pytest.mark.parametrize("stack", SAMPLES)
def test_conditions_of_the_alarms_of_a_sample_stack(stack: str) -> None:
    conditions = {name: condition(alarm) for name, alarm in shipped(stack).alarms().items()}
    assert conditions == {name: ALARMS[row(stack, name)] for name in conditions}


def test_conditions_of_the_deadline_and_budget_alarms() -> None:
    alarms = training.stack(deadline="2027-03-01T18:00:00+01:00", budget=50).alarms()
    assert condition(alarms["resnet-deadline"]) == ALARMS["<job>-deadline"]
    assert condition(alarms["resnet-budget"]) == ALARMS["<job>-budget"]


def test_every_row_is_of_a_declared_alarm() -> None:
    rows = {row(stack, name) for stack in SAMPLES for name in shipped(stack).alarms()}
    assert rows | {"<job>-deadline", "<job>-budget"} == ALARMS.keys()
