"""The review's verdict on every changed key of the sample stacks, beside the truth (``make bench-review``).

Each key that a stack file has is changed once, and each key that it could have is set in one stack. The
preview is built from what the program declares before and after; the truth comes from the providers'
replacements and from what the controllers do (``tests/review/oracle.py``), not from the review's tables. A
false reassurance is the verdict "nothing ends" where workers end or may; a false alarm is another verdict
where nothing does.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from policy.evaluation import violations
from research.parts.run import MACHINE, parser_of, verdict, write
from tests.apart import SHARED_VARIABLE
from tests.policy.cases import FACTS
from tests.policy.mistakes import CONFIG, MISTAKES
from tests.review.changes import changes
from tests.review.engine_changes import engine_changes, is_silent
from tests.review.oracle import is_false_alarm, is_reassuring
from tests.review.test_oracle import Judged, judge

MIN_CHANGES: Final = 200
MAX_FALSE_ALARMS: Final = 0.05
"""Of all changes."""
INTENDED: Final = {"protect": {"protected"}}
"""By the key that is changed, the rules that are there to stop the change; prod must not be unprotected."""


def figures(judged: Sequence[Judged]) -> dict[str, Any]:
    reassured = [item for item in judged if is_reassuring(item.verdict, item.fact)]
    hidden = [item for item in judged if is_reassuring(item.verdict_without_values, item.fact)]
    alarmed = [item for item in judged if is_false_alarm(item.verdict, item.fact)]
    silent = [
        item for item in judged if item.second_axis == "watch" and not item.directions & {"shrinks", "grows"}
    ]
    second_axis = [
        item for item in judged if item.second_axis == "nothing" and item.directions & {"shrinks", "unknown"}
    ]
    engine = list(engine_changes())
    green = [change.title for change in engine if is_silent(change) and not change.may_be_silent]
    alarmed += [item for item in second_axis if item not in alarmed]
    stopped = [item for item in judged if item.stopped_by - INTENDED.get(item.change.key, set())]
    return {
        "changes": len(judged),
        "changes_of_the_engine": len(engine),
        "false_reassurances_beside_workers": len(silent) + len(green),
        "false_reassurances": len(reassured),
        "false_reassurances_without_values": len(hidden),
        "false_alarms": len(alarmed),
        "truths": dict(Counter(item.fact for item in judged)),
        "verdicts": dict(Counter(item.verdict for item in judged)),
        **_policies(),
        "good_forms_stopped": len(stopped),
        "wrong": sorted({item.change.title for item in (*reassured, *hidden, *alarmed, *silent)} | {*green}),
        "stopped": {item.change.title: sorted(item.stopped_by) for item in stopped},
    }


def _policies() -> dict[str, int]:
    """Count the planted mistakes, and those that a mandatory policy stops in each of their forms."""
    caught = [
        all(
            any(v.rule == rule and v.level == "mandatory" for v in violations(program, CONFIG, FACTS))
            for rule, program in forms
        )
        for forms in MISTAKES.values()
    ]
    return {"policies_planted": len(caught), "policies_caught": sum(caught)}


def broken(result: dict[str, Any]) -> list[str]:
    lines = [
        f"{key}: {result[key]}" for key in result if key.startswith("false_reassurances") and result[key]
    ]
    if result["policies_caught"] < result["policies_planted"]:
        lines.append(f"{result['policies_caught']} of {result['policies_planted']} mistakes are stopped")
    if result["changes"] < MIN_CHANGES:
        lines.append(f"{result['changes']} changes, at least {MIN_CHANGES}")
    if result["false_alarms"] > MAX_FALSE_ALARMS * result["changes"]:
        lines.append(f"{result['false_alarms']} false alarms of {result['changes']}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "review")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th change")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        os.environ.setdefault(SHARED_VARIABLE, folder)
        judged = [item for item in pool.map(judge, changes()[:: options.every]) if item is not None]
        result = figures(judged)
    problems = broken(result) if options.every == 1 else []
    write(options.out, {"machine": MACHINE, **result, "broken": problems})
    counts = (
        "changes",
        "changes_of_the_engine",
        "false_reassurances_beside_workers",
        "false_reassurances",
        "false_reassurances_without_values",
        "false_alarms",
    )
    for key in (*counts, "policies_planted", "policies_caught", "good_forms_stopped"):
        print(f"{key:36}{result[key]:6}")
    for title in result["wrong"]:
        print(f"  {title}")
    for title, rules in result["stopped"].items():
        print(f"  {title}: stopped by {', '.join(rules)}")
    return verdict(problems)


if __name__ == "__main__":
    sys.exit(main())
