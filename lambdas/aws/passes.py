"""A pass over the groups of a stack: some at once, completely, those first that were tried longest ago."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from lambdas.aws.budget import Budget
from lambdas.aws.items import ConflictError, VersionedItems

MAX_GROUPS: Final = 50
"""Groups that are read at once: a call describes 100 Auto Scaling groups, two for each.

Source: Auto Scaling API reference, ``DescribeAutoScalingGroups``, ``MaxRecords``.
"""
MAX_ATTEMPTS: Final = 3
"""Attempts per group and pass, after a read error or a decision of a concurrent execution.

Three are enough to handle a notice however executions interleave: the second save was made after reading the
first, the third after reading the second, so its observation is newer than the notice.
"""
SAVE_SECONDS: Final = 10.0
"""Time between two writes of the visits, of which an execution that is killed loses the last."""
REST_SECONDS: Final = 600.0
"""Time between two looks at a group whose job has ended and which has no instance."""


@dataclass(frozen=True, slots=True)
class StackResources:
    """The deployed resources of a stack that a function uses.

    Attributes:
        message_target: Where it sends messages: the controller's queue, the health checker's topic.
    """

    stack: str
    root: str
    memory_table: str
    registry_table: str
    instance_arns: str
    message_target: str = ""


class Visit(NamedTuple):
    """When a group was last tried and decided, is due, and rests until; epoch seconds, 0: never."""

    tried: float = 0.0
    decided: float = 0.0
    due_at: float = 0.0
    rests_until: float = 0.0


class Verdict(NamedTuple):
    """What a pass needs to know of an outcome; ``due_at`` and ``rests_until`` as in `Visit`."""

    is_decided: bool
    should_retry: bool = False
    due_at: float = 0.0
    rests_until: float = 0.0


class Outcome(Protocol):
    """What a pass did for a group."""

    @property
    def group(self) -> str: ...  # noqa: D102
    @property
    def verdict(self) -> Verdict: ...  # noqa: D102


OutcomeT = TypeVar("OutcomeT", bound=Outcome)


def _nothing(_: Any) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Reporting(Generic[OutcomeT]):
    """What a pass reports while it runs.

    Attributes:
        outcome: of a group, as soon as it is served.
        undecided: seconds since the oldest decision of a group, at the start.
        unserved: the groups for which there was no time.
    """

    outcome: Callable[[OutcomeT], None] = _nothing
    undecided: Callable[[float], None] = _nothing
    unserved: Callable[[Sequence[str]], None] = _nothing


@dataclass(slots=True)
class Visits:
    """The visits of a function's groups: an item, which concurrent executions merge."""

    items: VersionedItems
    key: str
    by_group: dict[str, Visit] = field(default_factory=dict)
    _version: int = 0

    def load(self) -> None:
        """Read the item; without a valid one nothing is known."""
        try:
            item, self._version = self.items.load(self.key)
            rows = json.loads((item or {})["visits"]["S"]).items()
            stored = {name: Visit(*map(float, row)) for name, row in rows}
        except (BotoCoreError, ClientError, ValueError, KeyError, TypeError, AttributeError):
            return
        for name, visit in stored.items():
            if visit.tried >= self.by_group.get(name, visit).tried:
                self.by_group[name] = visit

    def save(self, groups: Collection[str]) -> None:
        """Write the visits of these groups; if that fails, the next pass has an older order."""
        for _ in range(MAX_ATTEMPTS):
            visits = {name: self.by_group[name] for name in groups}
            rows = {name: [round(at) for at in visit] for name, visit in visits.items()}
            text = json.dumps(rows, separators=(",", ":"))
            try:
                self._version = self.items.save(self.key, {"visits": {"S": text}}, self._version)
            except ConflictError:
                self.load()
            except (BotoCoreError, ClientError):
                return
            else:
                return


@dataclass(frozen=True, slots=True)
class Pass(Generic[OutcomeT]):
    """A pass of a function.

    Attributes:
        read: Reads some groups at once, in the given attempt, and returns how each is decided. It raises what
            could not be read for all of them.
        fail: Returns the outcome of a group, an attempt and its error.
    """

    visits: Visits
    budget: Budget
    reporting: Reporting[OutcomeT]
    read: Callable[[Sequence[str], int], Callable[[str], OutcomeT]]
    fail: Callable[[str, int, Exception], OutcomeT]

    def run(
        self, groups: Collection[str], first: Collection[str] = (), ended: Collection[str] = ()
    ) -> list[OutcomeT]:
        """Serve the groups, and return the outcomes.

        ``first`` come first, then those that are due, then those that were tried longest ago. Of groups that
        cannot be read together each is tried alone. ``ended`` groups may rest.
        """
        began, visits = self.budget.clock(), self.visits.by_group
        self.visits.load()
        for name in groups:
            tried, decided, due_at, rests_until = visits.get(name, Visit(decided=began))
            # A clock that was ahead must not make a group wait.
            rests_until = min(rests_until, began + REST_SECONDS)
            visits[name] = Visit(min(tried, began), min(decided, began), due_at, rests_until)
        awake = [n for n in groups if n in first or n not in ended or visits[n].rests_until <= began]
        waits = (began - max(v.decided, min(v.rests_until, began)) for v in map(visits.__getitem__, awake))
        self.reporting.undecided(max(waits, default=0.0))
        awake.sort(key=lambda n: (n not in first, not 0 < visits[n].due_at <= began, visits[n].tried, n))
        pending = [(awake[n : n + MAX_GROUPS], 1) for n in range(0, len(awake), MAX_GROUPS)]
        outcomes: list[OutcomeT] = []
        failed: dict[str, OutcomeT] = {}
        saved_at = began

        def finish(outcome: OutcomeT, at: float) -> None:
            is_decided, _, due_at, rests_until = outcome.verdict
            decided = at if is_decided else visits[outcome.group].decided
            visits[outcome.group] = Visit(at, decided, due_at, rests_until)
            outcomes.append(outcome)
            self.reporting.outcome(outcome)

        while pending and not self.budget.is_over:
            chunk, attempt = pending.pop(0)
            at = self.budget.clock()
            # A concurrent execution may have decided since.
            chunk = [n for n in chunk if n in first or attempt > 1 or visits[n].decided <= began]
            unserved = dict.fromkeys(chunk)
            for outcome, is_shared in self._outcomes(chunk, attempt):
                if is_shared and outcomes and self.budget.is_over:
                    break
                del unserved[outcome.group]
                is_repeated = outcome.verdict.should_retry or (is_shared and len(chunk) > 1)
                if is_repeated and attempt < MAX_ATTEMPTS and not self.budget.is_over:
                    failed[outcome.group] = outcome
                    pending.append(([outcome.group], attempt + 1))
                else:
                    finish(outcome, at)
            if unserved:
                pending.insert(0, (list(unserved), attempt))
            elif pending and self.budget.clock() >= saved_at + SAVE_SECONDS:
                saved_at = self.budget.clock()
                self.visits.save(groups)
        unserved_groups = [name for chunk, _ in pending for name in chunk]
        for name in failed.keys() & unserved_groups:
            finish(failed[name], self.budget.clock())
        self.visits.save(groups)
        if unserved_groups := [name for name in unserved_groups if name not in failed]:
            self.reporting.unserved(unserved_groups)
        return outcomes

    def _outcomes(self, chunk: Sequence[str], attempt: int) -> Iterator[tuple[OutcomeT, bool]]:
        """Yield outcomes, and whether an error is shared: the groups could not be read together."""
        try:
            decide = self.read(chunk, attempt)
        except Exception as error:  # reported with each group
            yield from ((self.fail(name, attempt, error), True) for name in chunk)
            return
        for name in chunk:
            if name != chunk[0] and self.budget.is_over:
                return
            try:
                outcome = decide(name)
            except Exception as error:  # reported with the other groups
                outcome = self.fail(name, attempt, error)
            yield outcome, False
