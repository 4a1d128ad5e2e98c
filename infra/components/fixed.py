"""Settings that are fixed once their resource exists: another value fails the preview, not the update.

The resource ignores changes of the input, so its output is the value in the state, in a preview as well; of a
resource that does not exist yet it is the program's own value, or unknown (Pulumi, "ignoreChanges"). Nothing
is deleted either: the engine deletes what a program no longer declares only if the program succeeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pulumi
from pulumi.output import Unknown

_NEW: Final = "a new resource"
"""Stands for a value that is known only after the update."""


def unchanged(
    key: str, desired: pulumi.Input[Any], current: pulumi.Output[Any], owner: str, remedy: str
) -> pulumi.Output[Any]:
    """Return ``current``; the output raises ``pulumi.RunError`` if the stack file asks for another value.

    Args:
        key: path of the key in the stack file.
        desired: value of the stack file.
        current: value in the state, an output that the resource ignores changes of.
        owner: the resource, in words.
        remedy: what to do in place of the change.
    """

    def check(values: Sequence[Any]) -> Any:
        present, expected = values
        if expected != present:
            raise pulumi.RunError(
                f"gpu-spot:{key} must stay {present}: {owner} of this stack cannot change to "
                f"{expected}. To change it, {remedy}"
            )
        return present

    return pulumi.Output.all(current, _or_placeholder(desired)).apply(check)


def in_subnets(
    subnet_ids: Iterable[pulumi.Input[str]], current: pulumi.Output[Sequence[str]], owner: str
) -> pulumi.Output[Sequence[str]]:
    """Return ``current``; the output raises ``pulumi.RunError`` if one of the subnets is removed.

    Args:
        subnet_ids: private subnets of the stack file's zones.
        current: subnets in the state.
        owner: the resource that stays in them, in words.
    """

    def check(values: Sequence[Any]) -> Sequence[str]:
        present, remaining = values
        if removed := sorted(set(present) - set(remaining)):
            raise pulumi.RunError(
                f"gpu-spot:network.zones must keep the zones of {', '.join(removed)}, which {owner} "
                "uses; add zones instead of removing these"
            )
        return list(present)

    return pulumi.Output.all(current, pulumi.Output.all(*map(_or_placeholder, subnet_ids))).apply(check)


def _or_placeholder(value: pulumi.Input[Any]) -> pulumi.Output[Any]:
    """Return an output that is always known: a placeholder for a value that is not."""
    return pulumi.Output.from_input(value).apply(
        lambda result: _NEW if isinstance(result, Unknown) else result, run_with_unknowns=True
    )
