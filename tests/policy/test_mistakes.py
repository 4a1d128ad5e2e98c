"""The pack stops every planted mistake, in each of its forms, by a mandatory rule."""

from __future__ import annotations

import pytest

from policy.evaluation import violations
from tests.policy.cases import FACTS
from tests.policy.mistakes import CONFIG, MISTAKES


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_stopped_in_all_its_forms(mistake: str) -> None:
    forms = MISTAKES[mistake]
    assert len(forms) >= 10
    missed = []
    for rule, program in forms:
        reported = [v for v in violations(program, CONFIG, FACTS) if v.level == "mandatory"]
        if rule not in {violation.rule for violation in reported}:
            missed.append((rule, program))
    assert missed == []
