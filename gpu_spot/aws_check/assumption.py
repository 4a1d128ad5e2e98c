"""A statement about AWS that this code relies on, and its test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_spot.aws_check.aws_test_bed import AwsTestBed


@dataclass(frozen=True, slots=True)
class Assumption:
    """A statement and its test.

    Attributes:
        name: short, unique, with hyphens.
        statement: the assumed behavior.
        source: the AWS documentation.
        used_by: the module that relies on it.
        falsified_by: the observation that would falsify it.
        run: runs the test; returns the observation, raises ``Falsified``.
        instances: maximum concurrent instances of the test, for the cost estimate.
        unsupported_reason: why moto cannot run the test, empty if it can.
    """

    name: str
    statement: str
    source: str
    used_by: str
    falsified_by: str
    run: Callable[[AwsTestBed], str]
    instances: int = 0
    unsupported_reason: str = ""


def assumes(
    source: str,
    used_by: str,
    falsified_by: str,
    *,
    name: str = "",
    instances: int = 0,
    unsupported_reason: str = "",
) -> Callable[[Callable[[AwsTestBed], str]], Assumption]:
    """Turn a test function into an assumption.

    Its docstring is the statement. ``name`` is by default the function's name.
    """

    def decorate(test: Callable[[AwsTestBed], str]) -> Assumption:
        statement = " ".join((test.__doc__ or "").split())
        public_name = name or test.__name__.replace("_", "-")
        return Assumption(
            public_name, statement, source, used_by, falsified_by, test, instances, unsupported_reason
        )

    return decorate
