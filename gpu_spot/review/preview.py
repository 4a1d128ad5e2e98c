"""One environment's preview: the output of ``pulumi preview --json``, and its event log with policy results.

Source: ``PreviewDigest`` in ``sdk/go/auto`` and ``PolicyEvent`` in ``sdk/go/common/apitype`` of the engine.
The digest omits policies (``pkg/backend/display/json.go``: "we don't handle policy events in JSON
serialization"), so they are read from the file of ``--event-log``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

UNCHANGED: Final = frozenset({"same", "read", "read-replacement", "refresh"})
"""Operations that do not change the resource."""

_REPLACEMENT_STEPS: Final = frozenset({"create-replacement", "delete-replaced", "discard-replaced"})
"""Listed in addition to ``replace`` if ``--show-replacement-steps`` is given."""

_ROOT: Final = "pulumi:pulumi:Stack"


@dataclass(frozen=True)
class EngineStep:
    """The engine's operation on a resource.

    Attributes:
        op: ``create``, ``update``, ``replace``, ``delete``, ``same`` …
        type: Pulumi's type token, for example ``aws:autoscaling/group:Group``.
        name: the logical name.
        old, new: the inputs before and after; empty if there are none.
        changed: names of the changed inputs, sorted; for a replacement also those that do not cause it.
        forcing: the changed inputs that cause the replacement.
        unprotected: whether deletion protection is removed.
    """

    op: str
    type: str
    name: str
    old: Mapping[str, Any] = field(default_factory=dict)
    new: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    forcing: tuple[str, ...] = ()
    unprotected: bool = False

    @property
    def kind(self) -> str:
        """The last part of the type, for example ``Group``."""
        return self.type.rpartition(":")[2]

    @property
    def is_component(self) -> bool:
        """Whether it is a component, which does not exist in AWS."""
        return not self.type.startswith("aws:")

    @property
    def now(self) -> Mapping[str, Any]:
        """The inputs that identify the resource: the new ones, or the old ones of a deleted resource."""
        return self.new or self.old


@dataclass(frozen=True)
class PolicyViolation:
    """A policy that a resource violates; ``level`` is ``mandatory`` or ``advisory``."""

    policy: str
    level: str
    resource: str
    message: str


@dataclass(frozen=True)
class Preview:
    """One environment's preview. ``errors`` and ``warnings`` are the engine's diagnostics.

    Without ``has_policy_results`` the policies were not evaluated.
    """

    environment: str
    steps: tuple[EngineStep, ...]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    violations: tuple[PolicyViolation, ...] = ()
    has_policy_results: bool = True

    @property
    def changes(self) -> tuple[EngineStep, ...]:
        """The steps that change a resource in AWS."""
        return tuple(step for step in self.steps if step.op not in UNCHANGED and not step.is_component)

    def counts(self) -> dict[str, int]:
        """Return the number of resources by operation."""
        return dict(sorted(Counter(step.op for step in self.changes).items()))


def read(environment: str, text: str, violations: Sequence[PolicyViolation] | None = None) -> Preview:
    """Read one environment's digest. ``violations`` is None if policies were not evaluated.

    Raises ``ValueError`` for an invalid digest.
    """
    with _parsing("a preview"):
        return _read(environment, json.loads(text), violations)


def read_policy_events(events: str) -> tuple[PolicyViolation, ...]:
    """Return the policy violations in an event log. Raises ``ValueError`` for an invalid log."""
    violations = []
    with _parsing("an event log"):
        for line in events.splitlines():
            event = json.loads(line).get("policyEvent")
            if event is not None:
                resource = event.get("resourceUrn", "").rpartition("::")[2]
                level = event["enforcementLevel"]
                # The message starts with the policy's description on a separate line.
                message = event["message"].strip().rpartition("\n")[2]
                violations.append(PolicyViolation(event["policyName"], level, resource, message))
    return tuple(dict.fromkeys(violations))


@contextmanager
def _parsing(expected_form: str) -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not {expected_form}: {type(error).__name__}: {error}") from None


def _read(environment: str, digest: Any, violations: Sequence[PolicyViolation] | None) -> Preview:
    diagnostics = [
        diagnostic for diagnostic in digest.get("diagnostics") or () if diagnostic.get("message", "").strip()
    ]
    return Preview(
        environment,
        tuple(
            _step(diagnostic)
            for diagnostic in digest.get("steps") or ()
            if diagnostic["op"] not in _REPLACEMENT_STEPS and f"::{_ROOT}::" not in diagnostic["urn"]
        ),
        tuple(
            diagnostic["message"].strip() for diagnostic in diagnostics if diagnostic["severity"] == "error"
        ),
        tuple(
            diagnostic["message"].strip() for diagnostic in diagnostics if diagnostic["severity"] == "warning"
        ),
        tuple(violations or ()),
        has_policy_results=violations is not None,
    )


def _step(step: Mapping[str, Any]) -> EngineStep:
    before, after = step.get("oldState") or {}, step.get("newState") or {}
    detailed = step.get("detailedDiff") or {}
    forcing = {_top(reason) for reason in step.get("replaceReasons") or ()}
    forcing |= {_top(path) for path, reason in detailed.items() if reason["kind"].endswith("-replace")}
    changed = {_top(path) for path in detailed} or {_top(reason) for reason in step.get("diffReasons") or ()}
    # urn:pulumi:<stack>::<project>::<types>::<name>; a name may hold "::".
    _, _, types, name = step["urn"].split("::", 3)
    return EngineStep(
        step["op"],
        types.rpartition("$")[2],
        name,
        before.get("inputs") or {},
        after.get("inputs") or {},
        tuple(sorted(changed | forcing)),
        tuple(sorted(forcing)),
        bool(before.get("protect") and after and not after.get("protect")),
    )


def _top(path: str) -> str:
    return path.partition(".")[0].partition("[")[0]
