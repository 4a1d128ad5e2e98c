"""The shape of ``services[].health``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.schema.base import Model
from lambdas.core.health import settings
from lambdas.core.health.settings import HealthSettings


class Health(Model):
    """How a service's workers are watched.

    An instance has ``grace_seconds`` after its launch until its workers report, and longer where boots take
    long. A worker that finishes nothing for ``stuck_seconds`` while requests wait is restarted: longer than
    the longest request. At most ``most_at_once`` percent of the instances are restarted or replaced at the
    same time, and one at least; with 0 people are told and nothing is done. ``digest`` is the hour (UTC) of
    the daily message, null for none.
    """

    grace_seconds: Annotated[int, Field(ge=60, le=7200)] = settings.GRACE_SECONDS
    stuck_seconds: Annotated[int, Field(ge=60, le=86_400)] = settings.STUCK_SECONDS
    most_at_once: Annotated[int, Field(ge=0, le=100)] = settings.MOST_AT_ONCE
    digest: Annotated[int, Field(ge=0, le=23)] | None = settings.DIGEST_HOUR

    @property
    def told(self) -> HealthSettings:
        """What the health checker is told."""
        digest = settings.NO_DIGEST if self.digest is None else self.digest
        return HealthSettings(self.grace_seconds, self.stuck_seconds, self.most_at_once, digest)
