"""The status codes of Spot requests: each has a class and a source."""

from __future__ import annotations

import pytest

from lambdas.core.launch_failures import classify, find_kind
from lambdas.core.model import LaunchFailureKind
from lambdas.core.spot_request_status import INTERRUPTION_CODES, STATUS_CODES, StatusClass, find_status

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
