"""The outcomes as a page for ``docs/``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from gpu_spot.aws_check.assumption import Assumption
from gpu_spot.aws_check.trial import Outcome

_HEAD = """# What this product takes from AWS's documentation

Written by `gpu-spot aws-check`; do not edit. Each line is a sentence about AWS that the named module \
leans on, tried one by one. {state}

| assumption | says | source | leans on it | falsified by | outcome |
|---|---|---|---|---|---|
"""


def not_run(assumptions: Iterable[Assumption]) -> str:
    """Return the page before anybody ran it on AWS."""
    return _page(
        "**Not run on AWS yet.**", [(assumption, "not run on AWS yet") for assumption in assumptions]
    )


def run_on_aws(outcomes: Sequence[Outcome], region: str, day: str) -> str:
    """Return the page of a run on AWS; ``day`` is its date."""
    counts = Counter(outcome.verdict for outcome in outcomes)
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    lines = [(outcome.assumption, f"**{outcome.verdict}**: {outcome.seen}") for outcome in outcomes]
    return _page(f"Run on AWS in {region} on {day}: {told}.", lines)


def _page(state: str, lines: Iterable[tuple[Assumption, str]]) -> str:
    rows = (
        f"| `{one.name}` | {_cell(one.says)} | {_cell(one.source)} | `{one.leans}` "
        f"| {_cell(one.falsified_by)} | {_cell(outcome)} |\n"
        for one, outcome in lines
    )
    return _HEAD.format(state=state) + "".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
