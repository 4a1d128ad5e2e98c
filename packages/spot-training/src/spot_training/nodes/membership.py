"""Which nodes form the next world: pure functions of one small document.

A *world* is a set of nodes with a number that grows; it never changes. When a node is lost, leaves or joins,
the world is over and its members form the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from spot_training.errors import SpotTrainingError

JOIN_SECONDS: Final = 2.0
"""From the last step of a world that ends after a save to the next: measured, 1.6 s (docs/adr/0082)."""


@dataclass(frozen=True)
class NodeLimits:
    """The number of nodes that train together."""

    minimum: int
    maximum: int


def limits_of(nodes: int | tuple[int, int] | str) -> NodeLimits | None:
    """Return the limits of ``4``, ``(2, 4)``, ``"4"`` or ``"2:4"``; None of an empty text."""
    if nodes == "":
        return None
    try:
        parts = nodes if isinstance(nodes, tuple) else str(nodes).split(":")
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not 1 <= numbers[0] <= numbers[-1]:
        raise SpotTrainingError(
            f"nodes must be a number, or the least and the most such as 2:4, not {nodes!r}"
        )
    return NodeLimits(numbers[0], numbers[-1])


def is_join_due(waited_seconds: float, members: int, *, save_seconds: float) -> bool:
    """Return whether nodes that wait join the world by a save of its own, before one is due.

    ``waited_seconds``: of all of them together; ``save_seconds``: what a save costs each of ``members``.
    They wait as long as a save and another world cost the members: so joining costs at most twice what it
    would if it were known when the next save or loss comes and who else is about to come (ski rental).
    """
    return waited_seconds >= members * (JOIN_SECONDS + save_seconds)


@dataclass(frozen=True)
class TrainingNode:
    """A node of a training: a machine, or a process where each process is started alone."""

    name: str
    token: str
    """Of its first process: a node that was started again has another one."""
    address: str
    """Where other nodes reach it: a host name or an address."""
    port: int
    """Of its store, if it becomes the first node of a world."""
    ranks: int
    """Its number of processes."""


@dataclass(frozen=True)
class NodeWorld:
    """Nodes that train together, in the order of their ranks."""

    number: int
    nodes: tuple[TrainingNode, ...]

    @property
    def size(self) -> int:
        """The number of ranks."""
        return sum(node.ranks for node in self.nodes)

    def first_rank(self, name: str) -> int:
        """Return the first rank of a node."""
        position = [node.name for node in self.nodes].index(name)
        return sum(node.ranks for node in self.nodes[:position])


@dataclass(frozen=True)
class Membership:
    """The document that all nodes share."""

    number: int = 0
    """Of the newest world."""
    world: NodeWorld | None = None
    """None before the first world and between two."""
    order: tuple[str, ...] = ()
    """The nodes of the newest world, by rank."""
    expected: tuple[TrainingNode, ...] = ()
    """Between two worlds: members of the last one that live and are not yet waiting for the next."""
    waiting: tuple[TrainingNode, ...] = ()
    """Nodes that can form the next world, in the order in which they came."""
    is_renewed: bool = False
    """Between two worlds: whether a member of the last one goes on."""
    is_finished: bool = False
    """Whether the training has ended: a node that starts again needs no others."""
    reason: str = ""
    """Why the last world is over."""

    @property
    def wants_change(self) -> bool:
        """Whether a node waits to join the world, for a save at which it can."""
        return self.world is not None and bool(self.waiting) and not self.is_finished

    def world_of(self, token: str) -> NodeWorld | None:
        """Return the world if a node is in it."""
        is_member = self.world is not None and any(node.token == token for node in self.world.nodes)
        return self.world if is_member else None


def enter(membership: Membership, node: TrainingNode) -> Membership:
    """Let a node wait for the next world; a world in which an earlier process of it was is over."""
    if membership.world is not None and node.name in membership.order:
        membership = end(membership, membership.number, f"node {node.name} has started again")
    return replace(
        membership,
        waiting=(*(waiting for waiting in membership.waiting if waiting.name != node.name), node),
        expected=tuple(member for member in membership.expected if member.name != node.name),
        is_renewed=membership.is_renewed or any(member.token == node.token for member in membership.expected),
    )


def end(membership: Membership, number: int, reason: str) -> Membership:
    """End a world, if it is the present one; all its members are expected back."""
    if membership.world is None or membership.number != number:
        return membership
    return replace(membership, world=None, expected=membership.world.nodes, is_renewed=False, reason=reason)


def remove(membership: Membership, token: str, reason: str) -> Membership:
    """Remove a process of a node that has ended, leaves or is lost; its world is over."""
    if membership.world_of(token) is not None:
        membership = end(membership, membership.number, reason)
    return replace(
        membership,
        expected=tuple(node for node in membership.expected if node.token != token),
        waiting=tuple(node for node in membership.waiting if node.token != token),
    )


def finish(membership: Membership, number: int) -> Membership:
    """Record that the training of a world has ended."""
    return replace(membership, is_finished=membership.is_finished or membership.number == number)


def reopen(membership: Membership) -> Membership:
    """Record that a finished training goes on after all: it needs as many nodes as any."""
    return replace(membership, is_finished=False)


def form(membership: Membership, limits: NodeLimits, *, is_overdue: bool) -> Membership:
    """Form the next world if it can begin.

    Survivors begin as soon as all of them are there and enough; the first world, and one after all nodes were
    lost, waits for ``limits.maximum`` nodes, and for members that do not come back, until ``is_overdue``.
    """
    if membership.world is not None:
        return membership
    enough = 1 if membership.is_finished else limits.minimum
    waiting = membership.waiting
    if len(waiting) < enough:
        return membership
    is_complete = not membership.expected and (
        membership.is_renewed or membership.is_finished or len(waiting) >= limits.maximum
    )
    if not is_complete and not is_overdue:
        return membership
    ranks = {name: position for position, name in enumerate(membership.order)}
    nodes = tuple(sorted(waiting, key=lambda node: ranks.get(node.name, len(ranks))))[: limits.maximum]
    tokens = {node.token for node in nodes}
    number = membership.number + 1
    return Membership(
        number=number,
        world=NodeWorld(number, nodes),
        order=tuple(node.name for node in nodes),
        waiting=tuple(node for node in waiting if node.token not in tokens),
        is_finished=membership.is_finished and len(nodes) < limits.minimum,
    )


def from_document(document: Mapping[str, Any]) -> Membership:
    """Return the membership of which a document (JSON) is the ``asdict``."""
    world = document["world"]
    return Membership(
        **{
            **document,
            "world": world and NodeWorld(world["number"], _nodes(world["nodes"])),
            "order": tuple(document["order"]),
            "expected": _nodes(document["expected"]),
            "waiting": _nodes(document["waiting"]),
        }
    )


def _nodes(documents: Iterable[Mapping[str, Any]]) -> tuple[TrainingNode, ...]:
    return tuple(TrainingNode(**document) for document in documents)
