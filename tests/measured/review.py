"""The review's verdict on every changed key of the sample stacks, beside the truth (``make bench-review``).

Each key that a stack file has is changed once, and each key that it could have is set in one stack. The
preview is built from what the program declares before and after; the truth comes from the providers'
replacements and from what the controllers do (``tests/review/oracle.py``), not from the review's tables. A
false reassurance is the verdict "nothing ends" where workers end or may; a false alarm is another verdict
where nothing does.

Each of these files, and each sample stack with two options of the schema more, is also a good form, which no
policy may stop. What a rule stops because a stack's own settings ask for more is counted apart.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from policy.evaluation import violations
from research.parts.page import replace_part, table
from research.parts.run import MACHINE, parser_of, verdict, write
from tests.apart import SHARED_VARIABLE
from tests.infra.test_trust import misjudged
from tests.policy.cases import FACTS
from tests.policy.forms import GoodForm, fingerprint, good_forms, own_rules
from tests.policy.mistakes import CONFIG, MISTAKES
from tests.policy.test_shipped import check
from tests.review.changes import STACKS, changes
from tests.review.engine_changes import engine_changes, is_silent
from tests.review.oracle import is_false_alarm, is_reassuring
from tests.review.test_oracle import Judged, declared_unless_refused, judge

MIN_CHANGES: Final = 200
MAX_FALSE_ALARMS: Final = 0.05
"""Of all changes."""
MIN_GOOD_FORMS: Final = 300
"""Programs that declare different resources."""
TOKENS: Final = 100_000
"""Drawn tokens of GitHub's (``tests/infra/test_trust.py``)."""


@dataclass(frozen=True)
class TriedForm:
    """A stack file that people may write: what it declares, and the mandatory policies that stop it."""

    stack: str
    title: str
    declares: str
    stopped_by: frozenset[str]

    @property
    def is_false_stop(self) -> bool:
        """Whether another rule stops it than those that the stack's own settings make strict."""
        return bool(self.stopped_by - own_rules(self.stack))


def try_form(form: GoodForm) -> TriedForm | None:
    """Try one form; None if the program refuses it."""
    after = declared_unless_refused(form.stack, form.apply)
    if after is None:
        return None
    stopped_by = frozenset(one.rule for one in check(after) if one.level == "mandatory")
    return TriedForm(form.stack, form.title, fingerprint(after), stopped_by)


def figures(judged: Sequence[Judged], forms: Sequence[TriedForm]) -> dict[str, Any]:
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
    of_keys = (TriedForm(o.change.stack, o.change.title, o.declares, o.stopped_by) for o in judged)
    tried = [*of_keys, *forms]
    stopped = [item for item in tried if item.stopped_by]
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
        "good_forms": len({(item.stack, item.declares) for item in tried}),
        "good_forms_of_two_options": len(forms),
        "good_forms_stopped": sum(item.is_false_stop for item in stopped),
        "good_forms_stopped_by_own_settings": sum(not item.is_false_stop for item in stopped),
        "tokens": TOKENS,
        "tokens_misjudged": len(misjudged(TOKENS)),
        "wrong": sorted({item.change.title for item in (*reassured, *hidden, *alarmed, *silent)} | {*green}),
        "stopped": {item.title: sorted(item.stopped_by) for item in stopped},
    }


def _policies() -> dict[str, int]:
    """Count the planted mistakes, and their forms that a mandatory policy stops."""
    caught = [
        [
            any(v.rule == rule and v.level == "mandatory" for v in violations(program, CONFIG, FACTS))
            for rule, program in forms
        ]
        for forms in MISTAKES.values()
    ]
    return {
        "bad_kinds": len(caught),
        "bad_forms": sum(map(len, caught)),
        "bad_forms_stopped": sum(map(sum, caught)),
    }


def broken(result: dict[str, Any]) -> list[str]:
    lines = [
        f"{key}: {result[key]}" for key in result if key.startswith("false_reassurances") and result[key]
    ]
    if result["bad_forms_stopped"] < result["bad_forms"]:
        lines.append(f"{result['bad_forms_stopped']} of {result['bad_forms']} bad forms are stopped")
    if result["tokens_misjudged"]:
        lines.append(f"{result['tokens_misjudged']} tokens are misjudged")
    if result["good_forms"] < MIN_GOOD_FORMS:
        lines.append(f"{result['good_forms']} good forms, at least {MIN_GOOD_FORMS}")
    if result["good_forms_stopped"]:
        lines.append(f"{result['good_forms_stopped']} good forms are stopped")
    if result["changes"] < MIN_CHANGES:
        lines.append(f"{result['changes']} changes, at least {MIN_CHANGES}")
    if result["false_alarms"] > MAX_FALSE_ALARMS * result["changes"]:
        lines.append(f"{result['false_alarms']} false alarms of {result['changes']}")
    return lines


def page_part(result: Mapping[str, Any]) -> str:
    silent = result["false_reassurances"] + result["false_reassurances_beside_workers"]
    hidden, alarms = result["false_reassurances_without_values"], result["false_alarms"]
    rows = [
        ("changed keys of the stack files", result["changes"], f"{silent} called harmless"),
        ("the same, all changed values unknown", result["changes"], f"{hidden} called harmless"),
        ("changes that no stack file makes", result["changes_of_the_engine"], "none called harmless"),
        ("changed keys", result["changes"], f"{alarms} false alarms ({alarms / result['changes']:.1%})"),
        (
            f"bad forms of {result['bad_kinds']} kinds",
            result["bad_forms"],
            f"{result['bad_forms_stopped']} stopped",
        ),
        ("good forms", result["good_forms"], f"{result['good_forms_stopped']} stopped"),
        ("drawn tokens", result["tokens"], f"{result['tokens_misjudged']} misjudged"),
    ]
    own = result["good_forms_stopped_by_own_settings"]
    asked = sorted({rule for rules in result["stopped"].values() for rule in rules})
    head = ("tried", "number", "found")
    return (
        "`make bench-review` changes each key that the ten sample stacks have or could have, and resources "
        "that only other code or another program changes. An oracle of its own says what ends: the "
        "provider's replacements, and what the controllers do.\n\n"
        f"{table(head, [(what, f'{number:,}', found) for what, number, found in rows])}\n\n"
        "Good forms are the changed stack files and "
        f"{result['good_forms_of_two_options']} with two options more, counted once for what they declare. "
        f"{own} more are stopped by what the settings of `prod` ask for ({', '.join(asked)}). Tokens are "
        "drawn as GitHub issues them to jobs; misjudged is one that assumes a role that it may not, or is "
        "refused one that it may."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__, "review", docs=True)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th change")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        os.environ.setdefault(SHARED_VARIABLE, folder)
        judged = [item for item in pool.map(judge, changes()[:: options.every]) if item is not None]
        every = [form for stack in STACKS for form in good_forms(stack)][:: options.every]
        tried = [form for form in pool.map(try_form, every) if form is not None]
        result = figures(judged, tried)
    problems = broken(result) if options.every == 1 else []
    write(options.out, {"machine": MACHINE, **result, "broken": problems})
    if options.every == 1:
        replace_part(options.docs, "review", page_part(result))
    counts = (
        "changes",
        "changes_of_the_engine",
        "false_reassurances_beside_workers",
        "false_reassurances",
        "false_reassurances_without_values",
        "false_alarms",
    )
    forms = [key for key in result if key.startswith(("bad_", "good_", "tokens"))]
    for key in (*counts, *forms):
        print(f"{key:36}{result[key]:6}")
    for title in result["wrong"]:
        print(f"  {title}")
    for title, rules in result["stopped"].items():
        print(f"  {title}: stopped by {', '.join(rules)}")
    return verdict(problems)


if __name__ == "__main__":
    sys.exit(main())
