"""AWS's words for a refused launch and its states of a Spot request, by what they mean for us."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lambdas.core.launch_failures import CAUSES, classify, find_kind
from lambdas.core.model import LaunchFailureKind
from lambdas.core.spot_request_status import INTERRUPTION_CODES, STATUS_CODES, StatusClass, find_status

MESSAGES = {
    LaunchFailureKind.CAPACITY: (
        "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your "
        "request configuration. Please adjust your request and try again. Launching EC2 instance failed.",
        "We currently do not have sufficient p3.2xlarge capacity in the Availability Zone you requested "
        "(us-west-2a). Our system will be working on provisioning additional capacity.",
        "There is no Spot capacity available that matches your request.",
        "capacity-not-available",
        # hashicorp/terraform-provider-aws, pull request 26493: error event of a Spot Fleet
        "m3.large, ami-00413793e4d8a02c8, Linux/UNIX: There is no Spot capacity available that matches "
        "your request.",
        # c6fc/npk, issue 70: likewise
        "p2.xlarge, ami-0e02647cb673cb89a, Linux/UNIX: We currently do not have sufficient p2.xlarge "
        "capacity in the Availability Zone you requested",
        # compiler-explorer/infra, issue 601: activity of an Auto Scaling group
        "InvalidFleetConfiguration - Your requested instance type (c5.large) is not supported in your "
        "requested Availability Zone (us-east-1e).",
        "Could not launch On-Demand Instances. Unsupported - Your requested instance type (p3.2xlarge) "
        "is not supported in your requested Availability Zone (eu-central-1c). Please retry your request "
        "by not specifying an Availability Zone or choosing eu-central-1a, eu-central-1b.",
        "Instance became unhealthy while waiting for instance to be in InService state. Termination "
        "Reason: Server.InternalError: Internal error on launch",
        "Instance became unhealthy while waiting for instance to be in InService state. Termination "
        "Reason: Server.SpotInstanceTermination: Spot instance termination",
        "Request limit exceeded. Launching EC2 instance failed.",
        "price-too-low",
        "Your Spot request price of 0.015 is lower than the minimum required Spot request fulfillment "
        "price of 0.0735. Launching EC2 instance failed.",
        "system-error: There was an unexpected system error.",
        "system-error",
        "instance-terminated-no-capacity",
    ),
    LaunchFailureKind.PERMISSION: (
        # Not AWS's own: a key that the service-linked role may not use.
        "Instance became unhealthy while waiting for instance to be in InService state. Termination "
        "Reason: Client.InternalError: Client error on launch",
        "Not authorized for images: [ami-1]. UnauthorizedOperation",
        "You are not authorized to perform this operation.",
    ),
    LaunchFailureKind.LIMIT: (
        "You have requested more vCPU capacity than your current vCPU limit of 8 allows for the instance "
        "bucket that the specified instance type belongs to. VcpuLimitExceeded",
        "Could not launch Spot Instances. VolumeLimitExceeded - limit.",
        "4 instance(s) are already running. Launching EC2 instance failed.",
        "Spot request sir-1: limit-exceeded",
        "limit-exceeded",
    ),
    LaunchFailureKind.CONFIGURATION: (
        "The security group 'sg-1' does not exist.",
        # Auto Scaling user guide, "Troubleshoot: EC2 instance launch failures"
        "The key pair gpu does not exist. Launching EC2 instance failed.",
        "Invalid device name upload. Launching EC2 instance failed.",
        "AMI ami-1 is pending, and cannot be run. Launching EC2 instance failed.",
        "constraint-not-fulfillable",
    ),
    LaunchFailureKind.UNKNOWN: (
        "",
        "The request cannot be fulfilled.",
        "instance-terminated-by-moonlight",
        "Something that AWS has never said before.",
    ),
}


CORPUS = json.loads((Path(__file__).parent / "corpus" / "launch_failures.json").read_text())
"""Sentences of AWS, each with its source, its kind, and where AWS has one its code."""


@pytest.mark.parametrize("row", CORPUS, ids=lambda row: row["text"][:40])
def test_a_sentence_has_the_kind_of_its_code(row: dict[str, str]) -> None:
    assert classify(row["text"]).value == row["kind"]
    assert row["source"]
    assert ("why" in row) is (row["kind"] == "unknown")
    if code := row.get("code"):
        assert classify(code).value == row["kind"]
        assert classify(f"Could not launch Spot Instances. {code} - words of tomorrow").value == row["kind"]


def test_the_corpus_has_words_for_the_causes() -> None:
    assert len(CORPUS) >= 80
    texts = [row["text"].casefold() for row in CORPUS]
    for cause in CAUSES:
        assert not cause.words or any(w.casefold() in text for w in cause.words for text in texts), cause
        assert {classify(phrase) for phrase in (*cause.codes, *cause.words)} == {cause.kind}


def test_only_the_limits_of_spot_alone_and_what_another_pool_can_do_are_covered() -> None:
    covered = {kind for kind in LaunchFailureKind if not kind.withholds_on_demand}
    assert covered == {LaunchFailureKind.CAPACITY, LaunchFailureKind.SPOT_LIMIT, LaunchFailureKind.UNKNOWN}


@pytest.mark.parametrize(
    ("message", "kind"), [(message, kind) for kind, messages in MESSAGES.items() for message in messages]
)
def test_launch_failures_are_classified(message: str, kind: LaunchFailureKind) -> None:
    assert classify(message) is kind


USER_GUIDE = {
    "az-group-constraint": StatusClass.CAPACITY,
    "bad-parameters": StatusClass.CONFIGURATION,
    "canceled-before-fulfillment": StatusClass.NOT_A_FAILURE,
    "capacity-not-available": StatusClass.CAPACITY,
    "constraint-not-fulfillable": StatusClass.CONFIGURATION,
    "fulfilled": StatusClass.NOT_A_FAILURE,
    "instance-stopped-by-price": StatusClass.PRICE,
    "instance-stopped-by-user": StatusClass.NOT_A_FAILURE,
    "instance-stopped-no-capacity": StatusClass.CAPACITY,
    "instance-terminated-by-price": StatusClass.PRICE,
    "instance-terminated-by-schedule": StatusClass.NOT_A_FAILURE,
    "instance-terminated-by-service": StatusClass.NOT_A_FAILURE,
    "instance-terminated-by-user": StatusClass.NOT_A_FAILURE,
    "spot-instance-terminated-by-user": StatusClass.NOT_A_FAILURE,
    "instance-terminated-launch-group-constraint": StatusClass.CAPACITY,
    "instance-terminated-no-capacity": StatusClass.CAPACITY,
    "launch-group-constraint": StatusClass.CAPACITY,
    "limit-exceeded": StatusClass.LIMIT,
    "marked-for-stop": StatusClass.TRANSIENT,
    "marked-for-termination": StatusClass.TRANSIENT,
    "not-scheduled-yet": StatusClass.TRANSIENT,
    "pending-evaluation": StatusClass.TRANSIENT,
    "pending-fulfillment": StatusClass.TRANSIENT,
    "placement-group-constraint": StatusClass.TRANSIENT,
    "price-too-low": StatusClass.PRICE,
    "request-canceled-and-instance-running": StatusClass.NOT_A_FAILURE,
    "schedule-expired": StatusClass.CAPACITY,
    "system-error": StatusClass.CAPACITY,
}
"""Section "Spot request status codes" of the EC2 user guide, in its order."""
EXPERIMENTS = {
    "marked-for-stop-by-experiment": StatusClass.TRANSIENT,
    "instance-stopped-by-experiment": StatusClass.NOT_A_FAILURE,
    "instance-terminated-by-experiment": StatusClass.NOT_A_FAILURE,
}
RETIRED = {
    "capacity-oversubscribed": StatusClass.CAPACITY,
    "instance-terminated-capacity-oversubscribed": StatusClass.CAPACITY,
}
ALL = {**USER_GUIDE, **EXPERIMENTS, **RETIRED}

KINDS = {
    StatusClass.LIMIT: LaunchFailureKind.LIMIT,
    StatusClass.CONFIGURATION: LaunchFailureKind.CONFIGURATION,
}


def test_the_table_has_every_code_of_the_user_guide_once() -> None:
    assert STATUS_CODES.keys() == ALL.keys()


def test_codes_of_an_interruption_are_in_the_table() -> None:
    assert set(INTERRUPTION_CODES) < STATUS_CODES.keys()


@pytest.mark.parametrize(("code", "status_class"), ALL.items())
def test_a_code_has_its_class_and_a_source(code: str, status_class: StatusClass) -> None:
    row = STATUS_CODES[code]
    assert (row.code, row.status_class) == (code, status_class)
    section = {
        **dict.fromkeys(EXPERIMENTS, "Interruption experiments"),
        **dict.fromkeys(RETIRED, "earlier edition"),
    }
    assert section.get(code, "Spot request status codes") in row.source


@pytest.mark.parametrize(("code", "status_class"), ALL.items())
def test_a_code_alone_and_in_a_text_has_the_same_kind(code: str, status_class: StatusClass) -> None:
    kind = KINDS.get(status_class, LaunchFailureKind.CAPACITY)
    assert classify(code) is kind
    if code != "fulfilled":
        assert classify(f"Spot request sir-1 has the status {code}: no details") is kind


@pytest.mark.parametrize(
    "text", ["", "not fulfilled", "instance-terminated", "x-system-error", "system-errors"]
)
def test_a_text_without_a_known_code_has_no_status(text: str) -> None:
    assert find_status(text) is None
    assert find_kind(text) is None
