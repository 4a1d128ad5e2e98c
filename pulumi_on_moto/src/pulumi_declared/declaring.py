"""List the resources that a program declares, as in its first preview: nothing is created or called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pulumi_declared.errors import UserError
from pulumi_declared.monitor import Monitor, Resource, run
from pulumi_declared.stackfile import StackConfig

Lookup: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a lookup (``aws.get_…``) from its arguments."""


def declared(
    config: StackConfig, lookups: Mapping[str, Lookup], ids: Mapping[str, str] | None = None
) -> tuple[Resource, ...]:
    """Run the program of a stack once and return its resources and components in order.

    Each has a generated id, name and ARN; other outputs of AWS are unknown, as in a preview.
    A process lists one program: Pulumi's runtime is global to it.

    Args:
        config: the stack, as ``load`` returns it.
        lookups: answers to the program's lookups, by token.
        ids: ids by resource type, if their form matters to the program.

    Raises:
        UserError: the program rejects its configuration, or a lookup has no answer.
    """
    monitor = _Listing(lookups, ids or {})
    run(monitor, config, preview=True)
    return tuple(monitor.recorded)


class _Listing(Monitor):
    def __init__(self, lookups: Mapping[str, Lookup], ids: Mapping[str, str]) -> None:
        super().__init__()
        self._lookups = lookups
        self._ids = ids

    def _register(self, request: Any, urn: str, parent: str, inputs: dict[str, Any]) -> Resource:
        type_, name, protect = request.type, request.name, bool(request.protect)
        if not request.custom:
            return Resource(urn, type_, name, parent, "", inputs, inputs, {}, protect)
        supplied_inputs = {key: value for key, value in inputs.items() if value is not None}
        outputs = {"name": name, "arn": f"arn:aws:declared:::{name}", **supplied_inputs}
        identity = self._ids.get(type_, f"{name}-id")
        return Resource(
            urn, type_, name, parent, identity, supplied_inputs, outputs, {}, protect, request.provider
        )

    def _look_up(self, token: str, args: Mapping[str, Any]) -> dict[str, Any]:
        value = self._lookups.get(token)
        if value is None:
            raise UserError(f"lookup {token} has no answer, answered are: {', '.join(sorted(self._lookups))}")
        return {**args, **value(args)}
