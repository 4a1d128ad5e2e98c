"""The comment: its maximum length and the escaping of quoted text; on built pull requests: test_made.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from markdown_it import MarkdownIt

from gpu_spot.review.comment import LIMIT, MARKER, comment
from gpu_spot.review.environments import review_environments
from gpu_spot.review.preview import EngineStep, PolicyViolation, Preview, read, read_policy_events
from tests.review.making import GOLDEN


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
    deleted = EngineStep(
        "delete",
        "aws:autoscaling/group:Group",
        "primary",
        {"tags": [{"key": "gpu-spot:group", "value": "web"}, {"key": "gpu-spot:side", "value": "primary"}]},
    )
    violations = tuple(PolicyViolation(f"rule-{n}", "advisory", "r" * 90, "ö" * 2000) for n in range(changes))
    return Preview(
        environment, (*steps, deleted), ("€" * 9000,) * changes, ("w" * 9000,) * changes, violations
    )


@pytest.mark.parametrize("environments", [1, 4, 12])
@pytest.mark.parametrize("changes", [10, 400])
def test_a_long_comment_is_truncated_by_importance(environments: int, changes: int) -> None:
    names = [f"env{place}" for place in range(environments)]
    text = comment(
        review_environments([huge(name, changes) for name in names], dict.fromkeys(names, "ü" * 50_000))
    )
    assert len(text.encode()) <= LIMIT
    # The effects on workers are never truncated completely.
    assert all(f"| **{name}** |" in text for name in names)
    assert text.count("**all workers of the primary group are terminated**") == environments
    assert text.count("ull output") >= environments
    assert text.count("<details>") == text.count("</details>")
    assert text.count("~~~~~~~~") % 2 == 0
    if changes == 400:
        assert "more in the full output" in text or "truncated" in text


def test_quoted_text_is_escaped() -> None:
    evil = "~~~~~~~~\n</details>\n`|@team <script>alert(1)</script>\n"
    old = {"insecureValue": "8", "tags": {"gpu-spot:group": "web"}}
    new = {"insecureValue": evil, "tags": {"gpu-spot:group": "web"}}
    target = EngineStep("update", "aws:ssm/parameter:Parameter", "x-web-target", old, new, ("insecureValue",))
    text = comment(
        review_environments(
            [Preview("dev", (target,), (evil,), (), (PolicyViolation("p", "mandatory", "r", "m"),))], {}
        )
    )
    kinds = [token.type for token in MarkdownIt("commonmark").enable("table").parse(text)]
    assert kinds.count("fence") == 2
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<script>" not in html
    assert html.count("</details>") == html.count("<details>") == 1


@pytest.mark.parametrize("evil", ["@acme/owners", "[here](http://x)", "![i](http://x)", "<b>", "**x**"])
def test_no_name_message_or_key_is_markdown(evil: str) -> None:
    tags = {"gpu-spot:group": evil}
    step = EngineStep(
        "update", f"aws:x/y:{evil}", evil, {evil: 1, "tags": tags}, {evil: 2, "tags": tags}, (evil,)
    )
    violation = PolicyViolation(evil, evil, evil, evil)
    text = comment(review_environments([Preview("dev", (step,), (), (evil,), (violation,))], {}))
    tokens = [
        child
        for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text)
        for child in token.children or ()
        if child.type != "code_inline"
    ]
    assert not {"link_open", "image", "html_inline"} & {
        token.type for token in tokens if "<br>" not in token.content
    }
    assert not any("@acme" in token.content or "**x**" in token.content for token in tokens)
    assert "<strong>x</strong>" not in MarkdownIt("commonmark").render(text)


def test_changed_policies_are_first_and_passed_says_how_many_rules() -> None:
    reviewed = review_environments([Preview("dev", ())], {}, {"dev": "16 mandatory, 1 advisory"})
    text = comment(reviewed, changed_policies=["policy/config/prod.json"])
    assert text.splitlines()[1:3] == [
        "> [!WARNING]",
        "> **Policies change: `policy/config/prod.json`.** Those of the base were applied.<br>",
    ]
    assert "| passed (16 mandatory, 1 advisory) |" in text


def test_the_same_change_of_both_groups_is_reported_once() -> None:
    assert (GOLDEN / "train-longer.md").read_text("utf-8").count("new launch template version") == 1


def digest(**step: Any) -> str:
    whole = {"op": "update", "urn": "urn:pulumi:dev::gpu-spot::a:b:C$aws:ec2/vpc:Vpc::x::y", **step}
    return json.dumps({"steps": [whole]})


def test_a_step_is_read_as_the_engine_writes_it() -> None:
    detailed_diff = {
        "cidrBlock": {"kind": "update-replace", "inputDiff": False},
        "tags.a[0]": {"kind": "add", "inputDiff": True},
    }
    [step] = read("dev", digest(op="replace", detailedDiff=detailed_diff, replaceReasons=["cidrBlock"])).steps
    assert (step.type, step.kind, step.name) == ("aws:ec2/vpc:Vpc", "Vpc", "x::y")
    assert (step.changed, step.forcing) == (("cidrBlock", "tags"), ("cidrBlock",))
    [plain] = read("dev", digest(diffReasons=["tags"], detailedDiff=None)).steps
    assert (plain.changed, plain.forcing) == (("tags",), ())


def test_replacement_parts_and_the_stack_itself_are_skipped() -> None:
    parts = [
        json.loads(digest(op=op))["steps"][0] for op in ("delete-replaced", "replace", "create-replacement")
    ]
    [replaced] = read("dev", json.dumps({"steps": parts})).steps
    assert (replaced.op, replaced.deleted_first) == ("replace", True)
    # Without a replacement of the resource they are operations of their own.
    assert read("dev", digest(op="create-replacement")).steps[0].op == "replace"
    assert read("dev", digest(op="delete-replaced")).steps[0].op == "delete"
    root = "urn:pulumi:dev::gpu-spot::pulumi:pulumi:Stack::gpu-spot-dev"
    assert not read("dev", digest(op="create", urn=root)).steps


def test_removed_protection_is_reported() -> None:
    preview_text = digest(oldState={"inputs": {}, "protect": True}, newState={"inputs": {}})
    assert "deletion protection is removed" in comment(review_environments([read("dev", preview_text)], {}))


@pytest.mark.parametrize(
    ("violations", "cell"), [(read_policy_events(""), "passed"), (None, "not evaluated")]
)
def test_policies_pass_only_if_they_were_evaluated(
    violations: tuple[PolicyViolation, ...] | None, cell: str
) -> None:
    whole = '{"steps": [], "changeSummary": {"same": 1}}'
    text = comment(review_environments([read("dev", whole, violations)], {}))
    assert f"| {cell} |" in text


@pytest.mark.parametrize(
    "text", ["error: no stack", "[]", '{"steps": [{"op": "same"}]}', '{"diagnostics": [1]}']
)
def test_an_invalid_preview_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(not valid JSON|not a preview): "):
        read("dev", text)


@pytest.mark.parametrize("text", ["no json", "[]", '{"policyEvent": {}}'])
def test_an_invalid_event_log_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(not valid JSON|not an event log): "):
        read_policy_events(text)


def test_a_comment_without_previews() -> None:
    text = comment(review_environments([], {}))
    assert text.startswith(f"{MARKER}\n> [!CAUTION]\n> **Not known whether workers end in any environment")
    assert "**No preview available.**" in text
