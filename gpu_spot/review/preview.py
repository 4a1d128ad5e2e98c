"""What the engine says of one environment: ``pulumi preview --json``, and its event log for the policies.

The forms are those of the engine's own sources: ``PreviewDigest`` in ``sdk/go/auto`` and ``PolicyEvent`` in
``sdk/go/common/apitype``. The digest leaves policies out (``pkg/backend/display/json.go``: "we don't handle
policy events in JSON serialization"), so they are read from the file of ``--event-log``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

UNCHANGED: Final = frozenset({"same", "read", "read-replacement", "refresh"})
"""Operations after which the resource is what it was."""

_PARTS_OF_REPLACING: Final = frozenset({"create-replacement", "delete-replaced", "discard-replaced"})
"""Shown beside ``replace`` only where ``--show-replacement-steps`` is given."""

_ROOT: Final = "pulumi:pulumi:Stack"


@dataclass(frozen=True)
class EngineStep:
    """What the engine does with one resource.

    Attributes:
        op: ``create``, ``update``, ``replace``, ``delete``, ``same`` …
        type: Pulumi's type token, for example ``aws:autoscaling/group:Group``.
        name: the logical name.
        old, new: the inputs before and after; empty where there is none.
        changed: names of the inputs that differ, sorted; of a replacement also those that cause none.
        forcing: of those the ones that make the engine replace it.
        unprotected: whether the engine's protection is lifted.
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
        """Whether it only groups others and exists nowhere in AWS."""
        return not self.type.startswith("aws:")

    @property
    def now(self) -> Mapping[str, Any]:
        """The inputs that tell what it is: the new ones, or the old ones of what goes."""
        return self.new or self.old


@dataclass(frozen=True)
class Complaint:
    """A policy that a resource violates; ``level`` is ``mandatory`` or ``advisory``."""

    policy: str
    level: str
    resource: str
    message: str


@dataclass(frozen=True)
class Preview:
    """One environment's preview. ``errors`` and ``warnings`` are the engine's own lines.

    Without ``is_judged`` nobody has told what policies say.
    """

    environment: str
    steps: tuple[EngineStep, ...]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    complaints: tuple[Complaint, ...] = ()
    is_judged: bool = True

    @property
    def changes(self) -> tuple[EngineStep, ...]:
        """The steps that change something in AWS."""
        return tuple(step for step in self.steps if step.op not in UNCHANGED and not step.is_component)

    def counts(self) -> dict[str, int]:
        """Return how many resources are created, updated, replaced, deleted."""
        return dict(sorted(Counter(step.op for step in self.changes).items()))


def read(environment: str, text: str, found: Sequence[Complaint] | None = None) -> Preview:
    """Read one environment's digest; ``found`` is what policies say, None where nobody has told.

    Raises ``ValueError`` for what is none.
    """
    with _expected("a preview"):
        return _read(environment, json.loads(text), found)


def complaints(events: str) -> tuple[Complaint, ...]:
    """Return what policies say in an event log; raise ``ValueError`` for what is none."""
    found = []
    with _expected("an event log"):
        for line in events.splitlines():
            told = json.loads(line).get("policyEvent")
            if told is not None:
                resource = told.get("resourceUrn", "").rpartition("::")[2]
                level = told["enforcementLevel"]
                # The engine puts the policy's description before what it found, on a line of its own.
                message = told["message"].strip().rpartition("\n")[2]
                found.append(Complaint(told["policyName"], level, resource, message))
    return tuple(dict.fromkeys(found))


@contextmanager
def _expected(what: str) -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not the JSON of {what}: {type(error).__name__}: {error}") from None


def _read(environment: str, digest: Any, found: Sequence[Complaint] | None) -> Preview:
    diagnostics = [one for one in digest.get("diagnostics") or () if one.get("message", "").strip()]
    return Preview(
        environment,
        tuple(
            _step(one)
            for one in digest.get("steps") or ()
            if one["op"] not in _PARTS_OF_REPLACING and f"::{_ROOT}::" not in one["urn"]
        ),
        tuple(one["message"].strip() for one in diagnostics if one["severity"] == "error"),
        tuple(one["message"].strip() for one in diagnostics if one["severity"] == "warning"),
        tuple(found or ()),
        is_judged=found is not None,
    )


def _step(told: Mapping[str, Any]) -> EngineStep:
    before, after = told.get("oldState") or {}, told.get("newState") or {}
    detailed = told.get("detailedDiff") or {}
    forcing = {_top(one) for one in told.get("replaceReasons") or ()}
    forcing |= {_top(path) for path, one in detailed.items() if one["kind"].endswith("-replace")}
    changed = {_top(path) for path in detailed} or {_top(one) for one in told.get("diffReasons") or ()}
    # urn:pulumi:<stack>::<project>::<types>::<name>; a name may hold "::".
    _, _, types, name = told["urn"].split("::", 3)
    return EngineStep(
        told["op"],
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
