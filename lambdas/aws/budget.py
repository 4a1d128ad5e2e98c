"""The share of a pass's time and pages that each group may use; prevents a group from starving others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

MAX_PAGES: Final = 64
"""Maximum pages per kind of records: a page holds 1,000 instances, or 1 MB of the worker registry."""

_Page = TypeVar("_Page")


class BudgetError(RuntimeError):
    """A group has used up its share of the pass; the message names the records that were read."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A group's share of the pass, which ends at ``ends_at`` by ``clock`` (epoch seconds)."""

    ends_at: float
    clock: Callable[[], float]

    def check(self, records: str) -> None:
        """Raise ``BudgetError`` if the time is over; ``records`` names what was read."""
        if self.clock() >= self.ends_at:
            raise BudgetError(f"the group's share of the pass ended while reading its {records}")

    def pages(self, records: str, pages: Iterable[_Page]) -> Iterator[_Page]:
        """Yield pages of records; raise ``BudgetError`` if there are too many, or the time is over."""
        for number, page in enumerate(pages, start=1):
            if number > MAX_PAGES:
                raise BudgetError(f"more than {MAX_PAGES} pages of {records}")
            self.check(records)
            yield page


UNLIMITED: Final = Budget(math.inf, lambda: 0.0)
"""No limit."""
