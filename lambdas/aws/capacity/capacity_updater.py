"""Carry decisions out: the only place that changes capacity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lambdas.aws.capacity.capacity_service import CapacityService, NotPlacedError, NotReleasedError, Order
from lambdas.aws.settings import GroupSettings
from lambdas.core.model import Action, Observation, Release, SetDesired, Side


@dataclass(frozen=True, slots=True)
class Failure:
    """A side that did not take its order, or not as it was given, and whom it has not let go."""

    side: Side
    error: Exception
    standing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Actor:
    """Acts on the sides of groups; ``capacity`` by kind of side."""

    capacity: Mapping[str, CapacityService]

    def perform(
        self, actions: Sequence[Action], settings: GroupSettings, seen: Observation
    ) -> tuple[Failure, ...]:
        """Carry out what a decision wants, side by side; alarms change nothing in AWS. Repeatable.

        A side that fails does not keep the other from its order: who refuses spot must not hold up on-demand.
        What is lowered goes first, and where that fails the other side is raised only as far as the ceiling
        leaves room.
        """
        failures: list[Failure] = []
        is_stuck = False
        orders = _orders(actions, seen).items()
        # Ahead of a release a side is raised for a moment, too.
        for side, order in sorted(
            orders, key=lambda item: (item[1].raises, item[1].capacity > item[1].before)
        ):
            handle = settings.sides[side]
            kept = _beside(order, side, settings.group.maximum, seen) if is_stuck else order
            try:
                self.capacity[handle.kind].move(handle.name, kept, settings.group)
            except NotReleasedError as error:
                failures.append(Failure(side, error, error.instance_ids))
            except NotPlacedError as error:
                failures.append(Failure(side, error, ()))
            except Exception as error:  # whatever it is: told with the others, when all have been tried
                is_stuck = True
                failures.append(Failure(side, error, order.going))
        return tuple(failures)


def _orders(actions: Iterable[Action], seen: Observation) -> dict[Side, Order]:
    """Return what each side is to do, in one piece: a fleet takes one modification at a time."""
    orders: dict[Side, Order] = {}
    for action in actions:
        match action:
            case SetDesired(side, capacity, _, zone):
                orders[side] = Order(seen.desired(side), capacity, zone=zone)
            case Release(side, instance_ids, _, freed, for_good):
                order = orders.get(side, Order(seen.desired(side), seen.desired(side)))
                orders[side] = replace(order, going=instance_ids, freed=freed, for_good=for_good)
            case _:
                pass
    return orders


def _beside(order: Order, side: Side, maximum: int, seen: Observation) -> Order:
    """Return the order as far as it fits beside another side that stays as it is."""
    others = sum(seen.desired(other) for other in Side if other is not side)
    # Raised to what stands already, ahead of a release, it launches nothing.
    room = max(order.before, seen.counted(side), maximum - others)
    return replace(order, capacity=min(order.capacity, room))
