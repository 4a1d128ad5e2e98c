"""The experiments of a ``matrix``: one for each combination of its values, named by them and nothing else.

Whoever declares them and whoever runs them find the same names.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_DIGITS: Final = 6
LONGEST_NAME: Final = 24 - len("-") - _DIGITS
"""Of an entry that has experiments: theirs begin with it."""


def combinations(matrix: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yield the environment of each experiment, in an order that is the matrix's alone."""
    # Whoever hands a mapping on may sort it.
    names = sorted(matrix)
    for values in itertools.product(*(matrix[name] for name in names)):
        yield dict(zip(names, values, strict=True))


def name_of(job: str, chosen: Mapping[str, str]) -> str:
    """Return ``<job>-<values, as far as there is room>-<digest of the values>``: at most 24 characters."""
    values = "-".join(
        re.sub(r"[^a-z0-9]+", "-", value.lower().replace(".", "p")) for value in chosen.values()
    )
    readable = re.sub(r"-+", "-", values)[: max(0, LONGEST_NAME - len(job) - 1)].strip("-")
    return "-".join(part for part in (job, readable, _digest(chosen)) if part)


def by_name(job: str, matrix: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return the environment of each experiment by its name."""
    return {name_of(job, chosen): chosen for chosen in combinations(matrix)}


def run_of(revision: str, matrix: Mapping[str, Sequence[str]]) -> str:
    """Return what a run of all experiments of a group is called: another matrix is another run."""
    return f"{revision}/{_digest({name: sorted(values) for name, values in matrix.items()})}"


def _digest(told: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:_DIGITS]
