"""Which tier a test belongs to, by where it stands; CONTRIBUTING.md says what each may touch.

``pytest -m pure`` selects one. Across the tiers stands ``long``: what takes seconds is left to ``make test``.
The longest path that fits counts; a single test of a file that is not ``long`` may carry the mark itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).parent
REHEARSED: Final = HERE / "live"

MARKS: Final = {
    "pure": "values in, values out",
    "adapter": "stubs, moto or real local processes, no Pulumi program",
    "archive": "what is deployed, in a clean process",
    "program": "Pulumi programs, a process each",
    "whole": "the command, the page in a browser",
    "long": "seconds each: whole runs, the benches at a reduced count",
}

_TIER_OF: Final = {
    "core": "pure",
    "deadline": "pure",
    "deadline/test_bench.py": "pure long",
    "deadline/test_fit.py": "pure long",
    "e2e": "whole",
    "infra": "program",
    "infra/test_accelerators.py": "pure",
    "infra/test_agent_archive.py": "archive",
    "infra/test_archive.py": "archive",
    "infra/test_boot.py": "adapter long",
    "infra/test_refusals.py": "pure",
    "infra/test_settings.py": "pure",
    "lambdas": "adapter",
    "lambdas/test_archive.py": "archive",
    "lambdas/test_bench.py": "adapter long",
    "live": "program",
    "live/test_scheduler.py": "pure",
    "live/test_travels.py": "pure",
    "market": "pure",
    "market/test_capacity_bench.py": "pure long",
    "market/test_replay_command.py": "whole",
    "market/test_warm_pool.py": "pure long",
    "node": "adapter",
    "node/test_permissions.py": "program",
    "node/test_standing_by.py": "adapter long",
    "node/test_tasks.py": "adapter long",
    "node/test_volume_aws.py": "adapter long",
    "node/test_volume_crash.py": "adapter long",
    "report": "pure",
    "report/test_browser.py": "whole",
    "report/test_moves.py": "whole",
    "report/test_page.py": "whole",
    "report/test_picture.py": "whole",
    "test_apart.py": "program",
    "test_arrows.py": "pure",
    "test_map.py": "pure",
    "test_repository.py": "adapter",
    "test_vocabulary.py": "pure",
}

_ONE_WORKER: Final = {"infra": "declared", "live": "rehearsed", "node/test_permissions.py": "permissions"}
"""What shares something costly (a program that has run, an open sandbox) stays on one of xdist's workers."""


def marks(path: Path) -> list[pytest.MarkDecorator]:
    """Return the marks of the tests in a file: its tier, and its group for xdist where it has one."""
    found = [getattr(pytest.mark, name) for name in _longest(_TIER_OF, path).split()]
    group = _longest(_ONE_WORKER, path)
    return [*found, pytest.mark.xdist_group(group)] if group else found


def _longest(table: dict[str, str], path: Path) -> str:
    fits = [place for place in table if path == HERE / place or HERE / place in path.parents]
    return table[max(fits, key=len)] if fits else ""
