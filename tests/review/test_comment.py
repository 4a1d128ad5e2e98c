"""The comment: never too long, and safe from what it quotes; on made pull requests: test_made.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from markdown_it import MarkdownIt

from gpu_spot.review.comment import LIMIT, MARKER, comment
from gpu_spot.review.judged import judged
from gpu_spot.review.preview import Complaint, EngineStep, Preview, complaints, read
from tests.review.making import GOLDEN


def test_who_ends_stands_first() -> None:
    head = (GOLDEN / "other-types-of-a-fleet.md").read_text("utf-8")[:400]
    assert "**Workers end in `fleet`** (inference)." in head
    assert "All workers stay" in (GOLDEN / "keep-logs-longer.md").read_text("utf-8")[:200]
    assert "Nothing changes" in (GOLDEN / "nothing.md").read_text("utf-8")[:200]


def huge(environment: str, changes: int) -> Preview:
    steps = [
        EngineStep(
            "update",
            "aws:cloudwatch/metricAlarm:MetricAlarm",
            f"alarm-{place}-{'ä' * 80}",
            {"threshold": 1},
            {"threshold": 2},
            ("threshold",),
        )
        for place in range(changes)
    ]
    gone = EngineStep(
        "delete",
        "aws:autoscaling/group:Group",
        "primary",
        {"tags": [{"key": "gpu-spot:group", "value": "web"}, {"key": "gpu-spot:side", "value": "primary"}]},
    )
    complaints = tuple(Complaint(f"rule-{n}", "advisory", "r" * 90, "ö" * 2000) for n in range(changes))
    return Preview(environment, (*steps, gone), ("€" * 9000,) * changes, ("w" * 9000,) * changes, complaints)


@pytest.mark.parametrize("environments", [1, 4, 12])
@pytest.mark.parametrize("changes", [10, 400])
def test_a_long_comment_is_cut_by_importance_and_says_so(environments: int, changes: int) -> None:
    names = [f"env{place}" for place in range(environments)]
    text = comment(judged([huge(name, changes) for name in names], dict.fromkeys(names, "ü" * 50_000)))
    assert len(text.encode()) <= LIMIT
    # The words about workers survive whatever is cut.
    assert all(f"| **{name}** |" in text for name in names)
    assert text.count("**all workers of the primary group end**") == environments
    assert text.count("the whole output") >= environments
    assert text.count("<details>") == text.count("</details>")
    assert text.count("~~~~~~~~") % 2 == 0
    if changes == 400:
        assert "stand in the whole output" in text or "cut here" in text


def test_what_is_quoted_stays_text() -> None:
    evil = "~~~~~~~~\n</details>\n`|@team <script>alert(1)</script>\n"
    old = {"insecureValue": "8", "tags": {"gpu-spot:group": "web"}}
    new = {"insecureValue": evil, "tags": {"gpu-spot:group": "web"}}
    target = EngineStep("update", "aws:ssm/parameter:Parameter", "x-web-target", old, new, ("insecureValue",))
    text = comment(
        judged([Preview("dev", (target,), (evil,), (), (Complaint("p", "mandatory", "r", "m"),))], {})
    )
    kinds = [token.type for token in MarkdownIt("commonmark").enable("table").parse(text)]
    assert kinds.count("fence") == 2
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<script>" not in html
    assert html.count("</details>") == html.count("<details>") == 1


def test_two_sides_with_one_change_are_told_once() -> None:
    assert (GOLDEN / "train-longer.md").read_text("utf-8").count("another template") == 1


def digest(**step: Any) -> str:
    whole = {"op": "update", "urn": "urn:pulumi:dev::gpu-spot::a:b:C$aws:ec2/vpc:Vpc::x::y", **step}
    return json.dumps({"steps": [whole]})


def test_a_step_is_read_as_the_engine_writes_it() -> None:
    told = {
        "cidrBlock": {"kind": "update-replace", "inputDiff": False},
        "tags.a[0]": {"kind": "add", "inputDiff": True},
    }
    [step] = read("dev", digest(op="replace", detailedDiff=told, replaceReasons=["cidrBlock"])).steps
    assert (step.type, step.kind, step.name) == ("aws:ec2/vpc:Vpc", "Vpc", "x::y")
    assert (step.changed, step.forcing) == (("cidrBlock", "tags"), ("cidrBlock",))
    [plain] = read("dev", digest(diffReasons=["tags"], detailedDiff=None)).steps
    assert (plain.changed, plain.forcing) == (("tags",), ())


def test_parts_of_a_replacement_and_the_stack_itself_are_no_steps() -> None:
    assert not read("dev", digest(op="create-replacement")).steps
    assert not read("dev", digest(op="delete-replaced")).steps
    root = "urn:pulumi:dev::gpu-spot::pulumi:pulumi:Stack::gpu-spot-dev"
    assert not read("dev", digest(op="create", urn=root)).steps


def test_lifted_protection_is_told() -> None:
    told = digest(oldState={"inputs": {}, "protect": True}, newState={"inputs": {}})
    assert "no longer refuses to delete it" in comment(judged([read("dev", told)], {}))


@pytest.mark.parametrize(("found", "told"), [(complaints(""), "kept"), (None, "not known")])
def test_policies_are_kept_only_where_somebody_looked(found: tuple[Complaint, ...] | None, told: str) -> None:
    text = comment(judged([read("dev", '{"steps": []}', found)], {}))
    assert f"| {told} |" in text


@pytest.mark.parametrize(
    "text", ["error: no stack", "[]", '{"steps": [{"op": "same"}]}', '{"diagnostics": [1]}']
)
def test_what_is_no_preview_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(no JSON|not the JSON of a preview): "):
        read("dev", text)


@pytest.mark.parametrize("text", ["no json", "[]", '{"policyEvent": {}}'])
def test_what_is_no_event_log_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(no JSON|not the JSON of an event log): "):
        complaints(text)


def test_a_comment_on_nothing_is_one() -> None:
    assert comment(judged([], {})).startswith(f"{MARKER}\n> [!CAUTION]\n> **No preview came.**")
