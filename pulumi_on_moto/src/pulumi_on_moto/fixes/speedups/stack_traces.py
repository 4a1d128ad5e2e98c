"""Source positions of resources are not collected: only the engine, absent here, uses them."""

from __future__ import annotations

from typing import Final

from pulumi.runtime import resource
from pulumi.runtime.proto import source_pb2

from pulumi_on_moto.fixes.fix import Patch

STACK_TRACES: Final[Patch] = (resource, "_get_stack_trace", source_pb2.StackTrace)
