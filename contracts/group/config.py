"""A group's ``config`` parameter, written by Pulumi and read by the controller and the rehearsal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from contracts import codec
from contracts.limits import Above, AtLeast, WholeNumber
from contracts.stored import FieldMark, Stored, stored

GroupKind: TypeAlias = Literal["mixed-asg", "spot-fleet"]
"""Type of the primary group."""

Price: TypeAlias = Annotated[float, Above(0)]
"""US dollars an hour."""


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A capacity policy and its parameters, see `contracts.group.policies`."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@stored(is_open=True)
@dataclass(frozen=True, slots=True)
class RunRules:
    """Which requests of a job with a schedule start a run.

    Attributes:
        overlap: Whether a request during a run is dropped or waits for its end.
        missed: Whether a request that was not seen in time still starts a run: the newest one, once.
        deadline_after: Deadline of a run in seconds after its begin; 0 without one.
    """

    overlap: Literal["skip", "wait"] = "skip"
    missed: Literal["once", "skip"] = "once"
    deadline_after: Annotated[float, AtLeast(0)] = 0.0


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Settings of a group that the controller needs, except its target and the ``control`` parameter.

    Attributes:
        primary: Name of an Auto Scaling group, or id of a Spot Fleet.
        fallback: Name of an Auto Scaling group; ``None`` without a fallback.
        slots: Worker slots by instance type.
        weights: AWS's weights above 1 by type, for a group that cannot be read.
        run: Revision that a job runs, empty for a service. Once the parameter ``finished`` names it, the
            effective target is 0.
        block: Id of the Capacity Block that the fallback launches into; empty without one.
        on_demand_prices: Hourly On-Demand price in US dollars of the capacity that replaces an instance, by
            the instance's type; types of unknown price are missing.
        dataset: Dataset (``<name>@<version>``) that must be prepared before GPUs are launched; empty if none.
        prepared_by: Group that prepares ``dataset``, possibly this one. Until that group's parameter
            ``prepared`` names the dataset, the effective target is 0; the preparing group's is 0 afterwards.
        by_zone: Whether the fallback accepts capacity changes for one zone, that of a job's volume.
        deadline: Deadline of a job in epoch seconds; 0 without one.
        on_premises: Ready on-premises workers that replace one slot; 0: on-premises workers do not count.
        on_premises_hosts: Worker slots by the name of an on-premises host.
        budget: Maximum cost of a job's run in US dollars; 0: unlimited.
        own_prices: With a budget, the hourly On-Demand price of each instance type itself.
        http_concurrency: Requests at one HTTP worker at once; 0: the workers are not HTTP servers.
        runs: Of a job with a schedule, whose ``run`` is the revision of its next run; see `jobs.run`.
    """

    kind: GroupKind
    primary: str
    fallback: str | None = None
    base: WholeNumber
    spot_percentage: WholeNumber
    maximum: Annotated[WholeNumber, Stored("max")]
    slots: Mapping[str, WholeNumber]
    weights: Annotated[Mapping[str, WholeNumber], FieldMark.SPARSE] = field(default_factory=dict)
    drain_seconds: Annotated[WholeNumber, FieldMark.REQUIRED] = 0
    break_before_make: bool = False
    """Absent in the configuration of stacks deployed before this option existed."""
    policy: PolicyChoice
    run: str = ""
    reserved: WholeNumber = 0
    block: str = ""
    zones: tuple[str, ...] = ()
    on_demand_prices: Mapping[str, Price] = field(default_factory=dict)
    dataset: str = ""
    prepared_by: str = ""
    by_zone: bool = False
    deadline: Annotated[float, AtLeast(0)] = 0.0
    on_premises: WholeNumber = 0
    on_premises_hosts: Mapping[str, WholeNumber] = field(default_factory=dict)
    budget: Annotated[float, AtLeast(0)] = 0.0
    own_prices: Mapping[str, Price] = field(default_factory=dict)
    http_concurrency: Annotated[WholeNumber, FieldMark.SPARSE] = 0
    runs: Annotated[RunRules | None, FieldMark.SPARSE] = None

    @property
    def spreads(self) -> bool:
        """Whether an instance of the primary group may be launched in one zone, to spread the group.

        Source: Auto Scaling guide, "Launch instances synchronously": groups of Spot alone, or of On-Demand.
        """
        is_of_spot_alone = (self.kind, self.base, self.spot_percentage) == ("mixed-asg", 0, 100)
        return is_of_spot_alone and not self.break_before_make and len(self.zones) > 1 and self.maximum > 2


def dumps(config: GroupConfig) -> str:
    """Serialize the parameter's value."""
    return json.dumps(codec.dump(config))


def parse(text: str) -> GroupConfig:
    """Parse the parameter's value; raise `ContractError` if it is invalid."""
    return codec.parse_text(GroupConfig, text)
