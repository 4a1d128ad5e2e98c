"""A long random walk of the controller with injected AWS faults (``make bench-walk``).

``tests/lambdas/walk.py`` defines the walk and its invariants. Any violation is an error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from bench.parts.run import MACHINE, parser_of, verdict, write
from tests.lambdas import walk

STEPS = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk, print, write the file; return 1 for a violation."""
    parser = parser_of(__doc__, "walk")
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first world")
    options = parser.parse_args(arguments)
    started = time.process_time()
    passes, violations = walk.run(options.steps, options.seed)
    seconds = time.process_time() - started
    result = {
        "machine": MACHINE,
        "steps": options.steps,
        "seed": options.seed,
        "passes": passes,
        "steps_per_second": round(options.steps / seconds),
        "violations": violations,
    }
    write(options.out, result)
    print(f"{options.steps} steps, {passes} passes, {len(violations)} violations, {seconds:.0f} s")
    return verdict(violations)


if __name__ == "__main__":
    sys.exit(main())
