"""Workers of an SQS queue (``make bench-service-sqs``): losses of messages when workers are lost.

The workers of ``make bench-service`` on moto's server, with injected duplicates, reordering, short batches
and errors (``packages/faulty_sqs.py``). Its speed is not that of AWS.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from packages.broker_plays import crowd
from packages.broker_plays.workers import Processes
from packages.faulty_sqs import FaultySqs
from research.parts.run import parser_of, write


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, write the file; return 1 if anything was lost or run twice unmarked."""
    parser = parser_of(__doc__, "service-sqs")
    parser.add_argument("--messages", type=int, default=600, metavar="N")
    parser.add_argument(
        "--losses", type=int, default=12, metavar="N", help="of workers, with and without a notice"
    )
    parser.add_argument("--workers", type=int, default=4, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    options = parser.parse_args(arguments)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    logging.getLogger("spot_work").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", "Exception.* does not match an error shape")
    with (
        tempfile.TemporaryDirectory() as name,
        FaultySqs(crowd.QUEUE.name, tries=crowd.QUEUE.max_deliveries, seed=options.seed) as sqs,
    ):
        os.environ.update(sqs.environment)
        outcome = crowd.play(
            sqs,
            Processes(Path(name)),
            options.messages,
            workers=options.workers,
            losses=options.losses,
            seed=options.seed,
        )
        result = {
            "broker": "a double of SQS, hostile",
            "seed": options.seed,
            **asdict(outcome),
            "delivered_though_hidden": sqs.duplicates,
            "dead": len(sqs.texts(f"{crowd.QUEUE.name}-dead")),
            "queues_left": sorted(sqs.queues()),
        }
    write(options.out, result)
    print(json.dumps(result, indent=2))
    return int(outcome.lost + outcome.wrong + outcome.unmarked_duplicates + outcome.drains_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
