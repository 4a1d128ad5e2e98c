"""A long random walk of the controller on a hostile AWS (``make bench-walk``).

The walk, what it does and what must hold: ``tests/lambdas/walk.py``. Any violation makes it fail.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lambdas import walk

STEPS = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk, print, write the file; 1 if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/bench/walk.json"))
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first world")
    options = parser.parse_args(arguments)
    started = time.process_time()
    passes, violations = walk.run(options.steps, options.seed)
    seconds = time.process_time() - started
    result = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "steps": options.steps,
        "seed": options.seed,
        "passes": passes,
        "steps_per_second": round(options.steps / seconds),
        "violations": violations,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"{options.steps} steps, {passes} passes, {len(violations)} violations, {seconds:.0f} s")
    for violation in violations:
        print(f"does not hold: {violation}", file=sys.stderr)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
