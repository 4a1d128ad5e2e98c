"""The shape of ``services[].health``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contracts.group import health_settings as settings
from contracts.group.health_settings import HealthSettings
from infra.schema.base import Model


class Health(Model):
    """How a service's workers are watched."""

    grace_seconds: Annotated[int, Field(ge=60, le=7200)] = settings.GRACE_SECONDS
    """From an instance's launch until its workers should report; longer where boots take long."""
    stuck_seconds: Annotated[int, Field(ge=60, le=86_400)] = settings.STUCK_SECONDS
    """A worker that finishes nothing for so long while requests wait, or the others finish ten each, is
    restarted: longer than the longest request."""
    most_at_once: Annotated[int, Field(ge=0, le=100)] = settings.MOST_AT_ONCE
    """Percent of the instances under treatment, one at least; 0: people are told, nothing is done."""
    digest: Annotated[int, Field(ge=0, le=23)] | None = settings.DIGEST_HOUR
    """The hour (UTC) of the daily message; null: none."""

    @property
    def told(self) -> HealthSettings:
        """What the health checker is told."""
        digest = settings.NO_DIGEST if self.digest is None else self.digest
        return HealthSettings(self.grace_seconds, self.stuck_seconds, self.most_at_once, digest)
