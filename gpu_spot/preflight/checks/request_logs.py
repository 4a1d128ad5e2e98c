"""Request logs of services: their log group, and whether its lines match the pattern."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from botocore.exceptions import ClientError

from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult, error_code
from gpu_spot.preflight.stack import Stack
from infra.schema import RequestLog

_MAX_LINES: Final = 50
"""The most that ``TestMetricFilter`` accepts. Source: CloudWatch Logs API reference."""


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check the log of each service that scales by one."""
    for service in stack.settings.services:
        if service.scaling is not None and service.scaling.log is not None:
            result = _check(f"request log of {service.name}", service.scaling.log, account.clients("logs"))
            yield replace(result, key=stack.key(service.name, "scaling.log"))


def _check(subject: str, log: RequestLog, client: Any) -> CheckResult:
    groups = client.describe_log_groups(logGroupNamePrefix=log.group)["logGroups"]
    group = next((candidate for candidate in groups if candidate["logGroupName"] == log.group), None)
    if group is None:
        finding = f"log group {log.group} does not exist in this account and region"
        return CheckResult(subject, "failure", finding, "create it, or set scaling.log.group")
    log_class = group.get("logGroupClass", "STANDARD")
    if log_class != "STANDARD":
        finding = f"log group {log.group} has the class {log_class}, which has no metric filters"
        return CheckResult(subject, "failure", finding, "use a log group of the class STANDARD")
    lines = [log.sample] if log.sample is not None else _newest(log.group, client)
    if not lines:
        finding = f"log group {log.group} has no line to test the pattern with"
        return CheckResult(subject, "warning", finding, "set scaling.log.sample")
    try:
        return _test(subject, log, lines, client)
    except ClientError as error:
        if error_code(error) != "InvalidParameterException":
            raise
        return CheckResult(subject, "failure", f"invalid pattern: {error.response['Error']['Message']}")


def _test(subject: str, log: RequestLog, lines: list[str], client: Any) -> CheckResult:
    matches = client.test_metric_filter(filterPattern=log.pattern, logEventMessages=lines)["matches"]
    if not matches:
        finding = f"none of {len(lines)} lines matches {log.pattern}: the service would count as idle"
        return CheckResult(subject, "failure" if log.sample else "warning", finding, "correct the pattern")
    counted = f"{len(matches)} of {len(lines)} lines are requests"
    if log.seconds is None or (log.seconds_pattern is not None and log.sample is not None):
        return CheckResult(subject, "ok", counted)
    if log.seconds_pattern is not None:
        pattern = log.seconds_pattern
        matches = client.test_metric_filter(filterPattern=pattern, logEventMessages=lines)["matches"]
    numbers = [match for match in matches if _is_number(match.get("extractedValues", {}).get(log.seconds))]
    if not numbers:
        finding = f"{counted}, but {log.seconds} is a number in none of {len(matches)} lines with it"
        return CheckResult(subject, "failure", finding, "correct scaling.log.seconds or its pattern")
    return CheckResult(subject, "ok", f"{counted}, {len(numbers)} have {log.seconds}")


def _is_number(text: str | None) -> bool:
    try:
        return text is not None and float(text) >= 0
    except ValueError:
        return False


def _newest(group: str, client: Any) -> list[str]:
    """Return the newest lines of the stream that was written last."""
    streams = client.describe_log_streams(
        logGroupName=group, orderBy="LastEventTime", descending=True, limit=1
    )["logStreams"]
    if not streams:
        return []
    events = client.get_log_events(
        logGroupName=group, logStreamName=streams[0]["logStreamName"], limit=_MAX_LINES, startFromHead=False
    )["events"]
    return [event["message"] for event in events if event["message"]]
