"""Settings of ``services[].health``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contracts.group import health_settings as settings
from contracts.group.health_settings import HealthSettings
from infra.schema.base import Model


class Health(Model):
    """Health checks of a service's workers."""

    grace_seconds: Annotated[int, Field(ge=60, le=7200)] = settings.GRACE_SECONDS
    """Seconds from the launch of an instance until its workers must report. Longer if boots take longer."""
    stall_timeout_seconds: Annotated[int, Field(ge=60, le=86_400)] = settings.STALL_TIMEOUT_SECONDS
    """Seconds without a finished request, while requests wait or the other workers finish ten each, after
    which a worker is restarted. Must be longer than the longest request."""
    max_unavailable_percent: Annotated[int, Field(ge=0, le=100)] = settings.MAX_UNAVAILABLE_PERCENT
    """Maximum percentage of instances that are restarted or replaced at once, at least one instance. 0:
    report only."""
    daily_report_hour: Annotated[int, Field(ge=0, le=23)] | None = settings.DAILY_REPORT_HOUR
    """Hour (UTC) of the daily report. Null disables the report."""

    @property
    def contract(self) -> HealthSettings:
        """The settings in the format of the health checker."""
        hour = settings.NO_DAILY_REPORT if self.daily_report_hour is None else self.daily_report_hour
        return HealthSettings(
            self.grace_seconds, self.stall_timeout_seconds, self.max_unavailable_percent, hour
        )
