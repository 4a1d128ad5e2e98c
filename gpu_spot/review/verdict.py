"""The verdict on all previews of a pull request: nothing ends, workers end, or it is not known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from gpu_spot.errors import ExitStatus
from gpu_spot.markdown import code, label
from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.environments import ReviewedEnvironment
from gpu_spot.text import counted

VerdictOutcome: TypeAlias = Literal["nothing", "ends", "unknown"]

EXIT_STATUS: Final[dict[VerdictOutcome, ExitStatus]] = {
    "nothing": ExitStatus.DONE,
    "ends": ExitStatus.ENDS,
    "unknown": ExitStatus.UNKNOWN,
}
"""Exit status of ``gpu-spot review --strict``."""


@dataclass(frozen=True)
class ReviewVerdict:
    """What ends.

    Attributes:
        outcome: ``ends`` if workers end for certain (a group without any has none), ``unknown`` if some may.
        workers: workers that end at least; 0 if no number is known.
        is_exact: whether the number is that of all that end.
        may_be_more: whether others may end besides those that end for certain.
        where: the environments, with the groups whose workers end.
    """

    outcome: VerdictOutcome
    workers: int = 0
    is_exact: bool = True
    may_be_more: bool = False
    where: str = ""

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.outcome == "nothing":
            return "No running worker stops."
        if self.outcome == "unknown":
            return f"Not known whether workers end in {self.where}."
        if self.is_exact and not self.may_be_more:
            return f"{counted(self.workers, 'worker')} end{'s' if self.workers == 1 else ''} in {self.where}."
        minimum = f"At least {counted(self.workers, 'worker')} end" if self.workers else "Workers end"
        return f"{minimum} in {self.where}: how many in all is not known."

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON values; ``workers`` is null where the number is not known."""
        counted = self.outcome != "unknown" and self.is_exact and not self.may_be_more
        return {
            "outcome": self.outcome,
            "workers": self.workers if counted else None,
            "at_least": self.workers,
            "sentence": self.sentence,
        }


def verdict_of(environments: Sequence[ReviewedEnvironment]) -> ReviewVerdict:
    """Return the verdict. Without any preview nothing is known."""
    ending = [(item, total) for item in environments if (total := _total(item)) != (0, True)]
    undetermined = [item for item in environments if _is_undetermined(item)]
    if ending:
        return ReviewVerdict(
            "ends",
            sum(count for _, (count, _) in ending),
            all(exact for _, (_, exact) in ending),
            bool(undetermined),
            ", ".join(_where(item) for item, _ in ending),
        )
    if undetermined or not environments:
        names = ", ".join(code(item.preview.environment) for item in undetermined)
        return ReviewVerdict("unknown", is_exact=False, where=names or "any environment: there is no preview")
    return ReviewVerdict("nothing")


def _is_undetermined(environment: ReviewedEnvironment) -> bool:
    """Return whether workers may end: data that is lost may be what they work on."""
    undetermined = (Severity.UNKNOWN, Severity.LOST)
    return bool(environment.preview.errors) or any(
        effect.severity in undetermined for effect in environment.meaning.effects
    )


def _total(environment: ReviewedEnvironment) -> tuple[int, bool]:
    """Return how many workers end at least, and whether that is all. Two ends of a group are not added."""
    counts: dict[str, list[int | None]] = defaultdict(list)
    for effect in environment.meaning.effects:
        if effect.severity is Severity.ENDS:
            counts[effect.group].append(effect.count)
    whole = {
        effect.group for effect in environment.meaning.effects if effect.ends_all and effect.count is not None
    }
    counted = {
        group: [count for count in group_counts if count is not None]
        for group, group_counts in counts.items()
    }
    exact = all(group in whole or None not in group_counts for group, group_counts in counts.items())
    return sum(max(group_counts, default=0) for group_counts in counted.values()), exact


def _where(environment: ReviewedEnvironment) -> str:
    groups = environment.meaning.groups(Severity.ENDS)
    named = f" ({', '.join(map(label, groups[:5]))}{' …' if len(groups) > 5 else ''})" if groups else ""
    return f"{code(environment.preview.environment)}{named}"
