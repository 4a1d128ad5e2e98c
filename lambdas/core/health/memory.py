"""State of the health checker for one group. If it is lost, detection starts over; nothing else breaks.

Its size is bounded: symptoms are stored for suspected hosts only, at most `MAX_PENDING_SYMPTOMS`. A rollout
has each host, so a long text is compressed: DynamoDB's limit of an item is 400 KB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from contracts import codec
from contracts.stored import stored
from lambdas.core import packing
from lambdas.core.health.model import Remedy
from lambdas.core.rollout.state import Rollout

FORMAT: Final = 1
MAX_PENDING_SYMPTOMS: Final = 1_500
MAX_LOG_ENTRIES: Final = 2_000
MAX_VERSIONS: Final = 20
MAX_INCIDENTS: Final = 50


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class PendingSymptom:
    """A symptom that is not confirmed yet: ``value`` has not changed since ``since`` (epoch seconds).

    A change of ``value`` disproves the symptom.
    """

    value: float
    since: float


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class RemediationRecord:
    """The last remediation of a host, when it was started, and the `HealthVerdict` that led to it."""

    remedy: Remedy
    at: float
    verdict: str


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class RemediationLogEntry:
    """A remediation of the last day; ``is_new_instance``: it replaced an instance soon after its launch."""

    at: float
    remedy: Remedy
    is_new_instance: bool


@stored(is_list=True)
@dataclass(frozen=True, slots=True)
class OpenIncident:
    """An open incident; ``is_notified`` once its notification was sent."""

    since: float
    last_seen_at: float
    description: str
    is_notified: bool = False


@stored(is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class HealthMemory:
    """Soft state of one group.

    Attributes:
        pending_symptoms: by verdict and worker or host.
        remediations: by host.
        log: remediations of the last day.
        versions: when each version was first observed, by origin and version.
        incidents: open incidents by key.
        resolved_incidents: incidents whose resolution was not notified yet, by key.
        daily_report_day: the last day (since 1970) with a daily report.
        rollout: the state of the rollout.
    """

    pending_symptoms: Mapping[str, PendingSymptom] = field(default_factory=dict)
    remediations: Mapping[str, RemediationRecord] = field(default_factory=dict)
    log: tuple[RemediationLogEntry, ...] = ()
    versions: Mapping[str, float] = field(default_factory=dict)
    incidents: Mapping[str, OpenIncident] = field(default_factory=dict)
    resolved_incidents: Mapping[str, OpenIncident] = field(default_factory=dict)
    daily_report_day: int = 0
    rollout: Rollout = field(default_factory=Rollout)


def dump(memory: HealthMemory) -> str:
    """Return the memory as JSON; equal memories give equal text."""
    return packing.packed({"format": FORMAT, **codec.dump(memory)})


def parse(text: str) -> HealthMemory:
    """Parse the text of `dump`; raise ``ValueError`` if it is malformed."""
    return codec.parse_versioned(HealthMemory, packing.unpacked(text), FORMAT)
