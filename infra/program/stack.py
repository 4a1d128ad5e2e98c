"""The program of a stack: it reads the settings, declares the resources and exports the outputs."""

from __future__ import annotations

from datetime import UTC, datetime

import pulumi

from infra.program import foundation, operations, outputs
from infra.program.entries import kinds
from infra.schema import Settings
from infra.scope import Scope, build_scope
from infra.settings import read_settings


def declare() -> None:
    """Declare all resources of the running stack and export its outputs."""
    settings = read_settings()
    declare_in(build_scope(settings, settings.stack_name or pulumi.get_stack()), settings)


def declare_in(scope: Scope, settings: Settings) -> None:
    """Declare all resources of ``settings`` in ``scope``, which receives the outputs."""
    for line in settings.preview_warnings(datetime.now(UTC)):
        pulumi.log.warn(line)
    base = foundation.declare(settings, scope, kinds.needs(settings))
    workloads = kinds.declare(settings, base)
    ops = operations.declare(settings, base, workloads)
    outputs.export(base, workloads, ops)
