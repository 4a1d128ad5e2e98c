"""The share of a pass that one group may take, so that no group starves the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

MOST_PAGES: Final = 64
"""Pages that a group may have of one kind: a page holds 1,000 instances, or 1 MB of the worker registry."""

_Page = TypeVar("_Page")


class BudgetError(RuntimeError):
    """A group would take more of the pass than its share; the message says of what."""


@dataclass(frozen=True, slots=True)
class Budget:
    """One group's share of the pass: it ends at ``ends_at`` of ``clock`` (epoch seconds)."""

    ends_at: float
    clock: Callable[[], float]

    def check(self, what: str) -> None:
        """Raise ``BudgetError`` where the time is over; ``what`` says on what it was spent."""
        if self.clock() >= self.ends_at:
            raise BudgetError(f"the group's share of the pass is over while its {what} are read")

    def pages(self, what: str, pages: Iterable[_Page]) -> Iterator[_Page]:
        """Yield the pages of one kind; raise ``BudgetError`` where they are too many, or time is over."""
        for number, page in enumerate(pages, start=1):
            if number > MOST_PAGES:
                raise BudgetError(f"the group has more than {MOST_PAGES} pages of {what}")
            self.check(what)
            yield page


UNLIMITED: Final = Budget(math.inf, lambda: 0.0)
"""For who waits for nobody."""
