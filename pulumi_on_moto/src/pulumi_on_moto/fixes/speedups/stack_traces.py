"""Where in the program each resource was declared: the SDK tells the engine, and there is none here."""

from __future__ import annotations

from typing import Final

from pulumi.runtime import resource
from pulumi.runtime.proto import source_pb2

from pulumi_on_moto.fixes.fix import Patch

STACK_TRACES: Final[Patch] = (resource, "_get_stack_trace", source_pb2.StackTrace)
