"""A statement about AWS that this code relies on, and its test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gpu_spot.aws_check.aws_test_bed import AwsTestBed

CostGroup: TypeAlias = Literal[1, 5, 25]
GROUPS: Final[tuple[CostGroup, ...]] = (1, 5, 25)
"""Groups of tests by the US dollars that a group costs at most, together with those before it."""


@dataclass(frozen=True, slots=True)
class BilledResource:
    """A billed resource other than small instances; tests that share one by name pay for it once.

    ``units`` are the maximum units by price, such as hours of ``eks-cluster`` (see ``cost``).
    """

    name: str
    units: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Assumption:
    """A statement and its test.

    Attributes:
        name: short, unique, with hyphens.
        statement: the assumed behavior.
        source: the AWS documentation.
        used_by: the module or decision record that relies on it.
        falsified_by: the observation that would falsify it.
        run: runs the test; returns the observation, raises ``Falsified``.
        instances: maximum concurrent small instances of the test, for the cost estimate.
        resources: other billed resources of the test.
        dollars: the cost group.
        by_name_only: whether it runs only if it is requested by name: it starts a GPU instance.
        unsupported_reason: why moto cannot run the test, empty if it can.
    """

    name: str
    statement: str
    source: str
    used_by: str
    falsified_by: str
    run: Callable[[AwsTestBed], str]
    instances: int = 0
    resources: Sequence[BilledResource] = ()
    dollars: CostGroup = 1
    by_name_only: bool = False
    unsupported_reason: str = ""


def assumes(
    source: str,
    used_by: str,
    falsified_by: str,
    *,
    name: str = "",
    instances: int = 0,
    resources: Sequence[BilledResource] = (),
    dollars: CostGroup = 1,
    by_name_only: bool = False,
    unsupported_reason: str = "",
) -> Callable[[Callable[[AwsTestBed], str]], Assumption]:
    """Turn a test function into an assumption.

    Its docstring is the statement. ``name`` is by default the function's name.
    """

    def decorate(test: Callable[[AwsTestBed], str]) -> Assumption:
        return Assumption(
            name=name or test.__name__.replace("_", "-"),
            statement=" ".join((test.__doc__ or "").split()),
            source=source,
            used_by=used_by,
            falsified_by=falsified_by,
            run=test,
            instances=instances,
            resources=resources,
            dollars=dollars,
            by_name_only=by_name_only,
            unsupported_reason=unsupported_reason,
        )

    return decorate
