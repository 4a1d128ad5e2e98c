"""Long random walks of the controller: with AWS faults, and with lying signals (``make bench-walk``).

``tests/lambdas/walk.py`` and ``tests/core/hostile_walk.py`` define the walks and their invariants; ``steps``
are taken in each. Any violation is an error, and so is a group that does not return to Spot (``absorbed``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from research.parts.run import MACHINE, parser_of, verdict, write
from tests.core import hostile_walk
from tests.lambdas import walk

STEPS = 200_000
_MAX_EXAMPLES = 20


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "walk")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first world")
    options = parser.parse_args(arguments)
    started = time.process_time()
    passes, violations = walk.run(options.steps, options.seed)
    hostile = hostile_walk.run(options.steps, options.seed)
    seconds = time.process_time() - started
    result = {
        "machine": MACHINE,
        "steps": options.steps,
        "seed": options.seed,
        "passes": passes,
        "steps_per_second": round(options.steps / seconds),
        "violations": violations,
        "ceiling_violations": len(hostile.ceiling_violations),
        "absorbed": len(hostile.absorbed),
        "examples": [*hostile.ceiling_violations, *hostile.absorbed][:_MAX_EXAMPLES],
    }
    write(options.out, result)
    print(
        f"{options.steps} steps in each walk, {passes} passes, {len(violations)} violations, "
        f"{len(hostile.ceiling_violations)} of the maximum, {len(hostile.absorbed)} groups without Spot, "
        f"{seconds:.0f} s"
    )
    absorbed = [f"{name} does not return to Spot" for name in hostile.absorbed]
    return verdict([*violations, *hostile.ceiling_violations, *absorbed])


if __name__ == "__main__":
    sys.exit(main())
