"""Long random walks of the controller: with AWS faults, and with lying signals (``make bench-walk``).

``tests/lambdas/walk.py`` and ``tests/core/hostile_walk.py`` define the walks and their invariants. ``steps``
are taken in the first and 2.5 times as many passes in the second, in every other world of which settings move
and inputs are absent. Any violation is an error, and so is a group that does not return to Spot.
Results of other seeds are added up with ``--add``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from research.parts.run import MACHINE, parser_of, verdict, write
from tests.core import hostile_walk
from tests.lambdas import walk

STEPS = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "walk")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first world")
    parser.add_argument("--add", type=Path, nargs="+", default=[], metavar="FILE", help="results to add up")
    options = parser.parse_args(arguments)
    started = time.process_time()
    if options.add:
        found = _total([json.loads(path.read_text("utf-8")) for path in options.add])
    else:
        passes, violations = walk.run(options.steps, options.seed)
        hostile = hostile_walk.run(options.steps * 5 // 2, options.seed)
        found = {
            "steps": options.steps,
            "passes": passes,
            "violations": violations,
            "hostile_passes": hostile.steps,
            "moving_passes": hostile.moving,
            "hostile_violations": hostile.violations,
            "absorbed": [f"{name} does not return to Spot" for name in hostile.absorbed],
            "alarms_opened": hostile.opened,
            "alarms_closed": hostile.closed,
            "alarms_open": hostile.still_open,
            "alarm_violations": hostile.alarms,
            "seconds": time.process_time() - started,
        }
    write(options.out, {"machine": MACHINE, "seed": options.seed, **found})
    for name, value in found.items():
        print(f"{name}: {len(value) if isinstance(value, list) else round(value)}")
    return verdict([line for value in found.values() if isinstance(value, list) for line in value])


def _total(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the sums and all lines of several runs."""
    names = [name for name in results[0] if name not in ("machine", "seed")]
    empty = {name: type(results[0][name])() for name in names}
    return {name: sum((result[name] for result in results), start) for name, start in empty.items()}


if __name__ == "__main__":
    sys.exit(main())
