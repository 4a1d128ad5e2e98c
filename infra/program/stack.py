"""One stack: settings in, resources and outputs out."""

from __future__ import annotations

from datetime import UTC, datetime

import pulumi

from infra.program import foundation, operations, outputs
from infra.program.entries import kinds
from infra.schema import Settings
from infra.scope import Scope, scope_of
from infra.settings import read_settings


def declare() -> None:
    """Declare everything that the running stack's settings ask for, and export what its user needs next."""
    settings = read_settings()
    within(scope_of(settings, pulumi.get_stack()), settings)


def within(scope: Scope, settings: Settings) -> None:
    """Declare everything that a stack file asks for; ``scope`` exports what its user needs next."""
    for remark in settings.remarks(datetime.now(UTC)):
        pulumi.log.warn(remark)
    base = foundation.declare(settings, scope, kinds.needs(settings))
    workloads = kinds.declare(settings, base)
    ops = operations.declare(settings, base, workloads)
    outputs.export(base, workloads, ops)
