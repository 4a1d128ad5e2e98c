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

from gpu_spot.review.values import plain

UNCHANGED: Final = frozenset(
    {
        *("same", "read", "read-replacement", "refresh", "discard", "discard-replaced"),
        *("remove-pending-replace", "extend-parameterize"),
    }
)
"""Operations that do not change the resource: at most its entry in the state."""

_REPLACEMENT_PARTS: Final = {
    "create-replacement": "replace",
    "import-replacement": "replace",
    "delete-replaced": "delete",
}
"""Listed in addition to ``replace`` if ``--show-replacement-steps`` is given. Without a ``replace`` of the
resource each is an operation of its own: ``delete-replaced`` is left from an update that failed half-way."""

_PARTIAL: Final = ("--target", "-t", "--exclude")
"""Arguments of ``pulumi preview`` that leave resources out."""

_ROOT: Final = "pulumi:pulumi:Stack"


@dataclass(frozen=True)
class EngineStep:
    """The engine's operation on a resource.

    Attributes:
        op: ``create``, ``update``, ``replace``, ``delete``, ``same`` …
        type: Pulumi's type token, for example ``aws:autoscaling/group:Group``.
        old, new: the inputs before and after; empty if there are none.
        changed: names of the changed inputs, sorted; for a replacement also those that do not cause it.
        forcing: the changed inputs that cause the replacement.
        unprotected: whether deletion protection is removed.
        custom: whether it exists at a provider; components do not.
        id: its id at the provider, empty if it is not known.
        retained: whether a deleted resource stays in the account (``retainOnDelete``).
        deleted_first: whether it is replaced by deleting the old one first.
        renamed: whether it had another URN before (an alias).
    """

    op: str
    type: str
    name: str
    old: Mapping[str, Any] = field(default_factory=dict)
    new: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    forcing: tuple[str, ...] = ()
    unprotected: bool = False
    custom: bool = True
    id: str = ""
    retained: bool = False
    deleted_first: bool = False
    renamed: bool = False

    @property
    def kind(self) -> str:
        """The last part of the type, for example ``Group``."""
        return self.type.rpartition(":")[2]

    @property
    def is_component(self) -> bool:
        """Whether it is a component, which exists at no provider."""
        return not self.custom

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

    Without ``has_policy_results`` the policies were not evaluated. ``limitations`` say why it may not list
    all that the update would do.
    """

    environment: str
    steps: tuple[EngineStep, ...]
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    violations: tuple[PolicyViolation, ...] = ()
    has_policy_results: bool = True
    limitations: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[EngineStep, ...]:
        """The steps that change a resource at its provider."""
        return tuple(step for step in self.steps if step.op not in UNCHANGED and not step.is_component)

    @property
    def is_whole(self) -> bool:
        """Whether it lists all that the update would do."""
        return not (self.errors or self.limitations)

    def counts(self) -> dict[str, int]:
        """Return the number of resources by operation."""
        return dict(sorted(Counter(step.op for step in self.changes).items()))


def read(environment: str, text: str, violations: Sequence[PolicyViolation] | None = None) -> Preview:
    """Read one environment's digest. ``violations`` is None if policies were not evaluated.

    Raises ``ValueError`` for an invalid digest.
    """
    with _parsing("a preview"):
        return _read(environment, json.loads(text), violations)


def unreadable(environment: str, reason: str, violations: Sequence[PolicyViolation] | None = None) -> Preview:
    """Return the preview of an environment whose digest is cut off or not JSON: a failed one."""
    message = f"the output of `pulumi preview` cannot be read ({reason})"
    return Preview(
        environment, (), (message,), violations=tuple(violations or ()), has_policy_results=bool(violations)
    )


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
        raise ValueError(f"not valid JSON: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not {expected_form}: {type(error).__name__}: {error}") from None


def _read(environment: str, digest: Any, violations: Sequence[PolicyViolation] | None) -> Preview:
    messages: dict[str, list[str]] = {"error": [], "warning": []}
    for diagnostic in digest.get("diagnostics") or ():
        if text := diagnostic.get("message", "").strip():
            messages.setdefault(diagnostic["severity"], []).append(text)
    listed = [step for step in digest.get("steps") or () if f"::{_ROOT}::" not in step["urn"]]
    return Preview(
        environment,
        tuple(_steps(listed)),
        tuple(messages["error"]),
        tuple(messages["warning"]),
        tuple(violations or ()),
        has_policy_results=violations is not None,
        limitations=tuple(_limitations(digest, listed)),
    )


def _steps(listed: Sequence[Mapping[str, Any]]) -> Iterator[EngineStep]:
    operations: dict[str, list[str]] = {}
    for step in listed:
        operations.setdefault(step["urn"], []).append(step["op"])
    for step in listed:
        op, all_ = step["op"], operations[step["urn"]]
        if op in _REPLACEMENT_PARTS:
            if "replace" in all_ or (op == "delete-replaced" and len(all_) > 1):
                continue
            op = _REPLACEMENT_PARTS[op]
        first = next((name for name in all_ if name in _REPLACEMENT_PARTS), "")
        yield _step(step, op, deleted_first=op == "replace" and first == "delete-replaced")


def _limitations(digest: Mapping[str, Any], listed: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    arguments = [str(argument) for argument in digest.get("arguments") or ()]
    if left_out := [item for item in arguments if item.partition("=")[0].startswith(_PARTIAL)]:
        yield f"only a part of the stack was previewed ({', '.join(left_out)})"
    if digest.get("maybeCorrupt"):
        yield "the engine reports that its state may be corrupt"
    counts = Counter(step["op"] for step in listed)
    for op in ("create", "update", "replace", "delete"):
        counted = (digest.get("changeSummary") or {}).get(op, 0)
        if counted > counts[op] + (op == "create"):  # the stack itself may be one of the created
            yield f"the preview counts {counted} resources to {op} and lists {counts[op]}"
    failed = any(item.get("severity") == "error" for item in digest.get("diagnostics") or ())
    if not digest.get("steps") and not digest.get("changeSummary") and not failed:
        yield "the preview lists no resource at all"


def _step(step: Mapping[str, Any], op: str, *, deleted_first: bool) -> EngineStep:
    before, after = step.get("oldState") or {}, step.get("newState") or {}
    old, new = plain(before.get("inputs") or {}), plain(after.get("inputs") or {})
    detailed = step.get("detailedDiff") or {}
    forcing = {_top(reason) for reason in step.get("replaceReasons") or ()}
    forcing |= {_top(path) for path, reason in detailed.items() if reason["kind"].endswith("-replace")}
    changed = {_top(path) for path in detailed} or {_top(reason) for reason in step.get("diffReasons") or ()}
    if not changed and op in ("update", "replace"):
        changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    # urn:pulumi:<stack>::<project>::<types>::<name>; a name may hold "::".
    _, _, types, name = step["urn"].split("::", 3)
    type_ = types.rpartition("$")[2]
    return EngineStep(
        op,
        type_,
        name,
        old,
        new,
        tuple(sorted(changed | forcing)),
        tuple(sorted(forcing)),
        bool(before.get("protect") and after and not after.get("protect")),
        custom=bool((after or before).get("custom", not type_.startswith("gpu-spot:"))),
        id=str(before.get("id") or ""),
        retained=bool(before.get("retainOnDelete")),
        deleted_first=deleted_first,
        renamed=bool(before.get("urn") and before["urn"] != step["urn"]),
    )


def _top(path: str) -> str:
    return path.partition(".")[0].partition("[")[0] or path
