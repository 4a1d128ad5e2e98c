"""The pull request comment: effects on workers, cost, policies, and the folded diff.

GitHub accepts 65,536 characters. Beyond that, diffs are truncated first, then forecasts, then policies and
diagnostics, and last the effects on workers; the comment says what is omitted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gpu_spot.markdown import code, label, short
from gpu_spot.review import difference
from gpu_spot.review.effects.axes import AXES, verb
from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.effects.effect import MAY_END, Effect
from gpu_spot.review.effects.workers import Meaning
from gpu_spot.review.environments import ReviewedEnvironment
from gpu_spot.review.preview import Preview
from gpu_spot.review.verdict import verdict_of
from gpu_spot.text import OUTLINE, counted

MARKER: Final = "<!-- gpu-spot preview -->"
"""First line of the comment, by which it is found for an update."""

LIMIT: Final = 65_536
"""GitHub's limit in characters; applied to bytes here, which are never fewer."""

_FENCE: Final = "~~~~~~~~"
_MAX_FORECAST_LENGTH: Final = 6_000
_MAX_LINES: Final = 20
"""Maximum details of an effect, and maximum violations and diagnostics of an environment."""
_MAX_UNKNOWN: Final = 2
"""Maximum details of what is not known: the diff below has all."""

_VERDICTS: Final = {
    Severity.NOTHING: "not affected",
    Severity.LATER: "not affected; later ones differ",
    Severity.WATCH: "needs attention",
    Severity.UNKNOWN: "**not known**",
    Severity.ENDS: "**terminated**",
    Severity.LOST: "**data loss**",
}


def comment(
    environments: Sequence[ReviewedEnvironment],
    run: str = "",
    commit: str = "",
    changed_policies: Sequence[str] = (),
) -> str:
    """Return the comment's Markdown, at most ``LIMIT`` bytes long.

    Args:
        environments: most severe first.
        run: URL of the full output.
        commit: the commit under review.
        changed_policies: changed files of policies, which were not applied.
    """
    head = _head(environments, run, commit, changed_policies)
    # Sections take at most nine tenths; the remaining bytes are shared by the diffs.
    sections = [_section(section) for section in environments]
    sections = _cut(sections, LIMIT * 9 // 10 - _size(head))
    remaining = LIMIT - _size(head) - sum(_size(section) for section in sections)
    diffs = _diffs(environments, remaining)
    return head + "".join(section + diff for section, diff in zip(sections, diffs, strict=True))


def _head(
    environments: Sequence[ReviewedEnvironment], run: str, commit: str, changed_policies: Sequence[str]
) -> str:
    links = f"Commit {commit[:12]}. " if commit else ""
    links += f"[Full output]({run})." if run else ""
    rows = [
        "| environment | workers | besides | policies | resources |",
        "|---|---|---|---|---|",
        *(_row(environment) for environment in environments),
    ]
    alert = _alert(environments, changed_policies)
    return "\n".join([MARKER, *alert, "", *rows, "", *([links, ""] if links else [])]) + "\n"


def _alert(environments: Sequence[ReviewedEnvironment], changed_policies: Sequence[str]) -> list[str]:
    """Return the verdict, and what else must be seen first."""
    verdict = verdict_of(environments)
    if verdict.outcome == "nothing" and not any(item.preview.changes for item in environments):
        lines = ["**No running worker stops: no changes.**"]
    else:
        lines = [f"**{verdict.sentence}** {_besides(environments)}"]
    lost = [item for item in environments if item.meaning.worst is Severity.LOST]
    failed = [item for item in environments if item.preview.errors]
    forbidden = [item for item in environments if _mandatory(item.preview)]
    watched = [item for item in environments if item.meaning.worst is Severity.WATCH]
    if not environments:
        lines.append("**No preview available.**")
    if lost:
        lines.append(f"**Data is lost in {_names(lost)}.**")
    if failed:
        lines.append(f"**The preview failed in {_names(failed)}.** The results below are incomplete.")
    if forbidden:
        lines.append(f"**A mandatory policy is violated in {_names(forbidden)}.**")
    if verdict.outcome == "nothing" and watched:
        lines.append(f"Review {_names(watched)}.")
    severe = verdict.outcome == "ends" or lost or failed or forbidden or not environments
    if changed_policies:
        paths = ", ".join(code(path) for path in changed_policies[:_MAX_LINES])
        lines.insert(0, f"**Policies change: {paths}.** Those of the base were applied.")
    doubtful = verdict.outcome == "unknown" or watched or changed_policies
    kind = "CAUTION" if severe else "WARNING" if doubtful else "NOTE"
    if len(lines) == 1:
        return [f"> [!{kind}]", f"> {lines[0]}"]
    return [f"> [!{kind}]", *(f"> {line}<br>" for line in lines[:_MAX_LINES])]


def _besides(environments: Sequence[ReviewedEnvironment]) -> str:
    """Return what changes beside running workers, and the cost, in a line."""
    parts = []
    for axis in AXES:
        merged = frozenset() if environments else frozenset({"unknown"})
        merged = merged.union(*(item.meaning.directions(axis) for item in environments))
        parts.append(f"{axis.capitalize()}: {_in_words(axis, merged)}.")
    costs = [re.sub(r" \(.*?\)", "", _cost(item)) for item in environments if item.cost]
    if len(environments) > 1:
        names = [code(item.preview.environment) for item in environments if item.cost]
        costs = [f"{name} {cost}" for name, cost in zip(names, costs, strict=True)]
    return " ".join([*parts, f"Money: {'; '.join(costs[:_MAX_LINES]) or 'unknown'}."])


def _in_words(axis: str, directions: frozenset[str]) -> str:
    words = {"unknown": "**look**", "shrinks": f"**{verb(axis, 'shrinks')}**", "grows": verb(axis, "grows")}
    return " and ".join(word for name, word in words.items() if name in directions) or "unchanged"


def _row(environment: ReviewedEnvironment) -> str:
    counts = ", ".join(f"{number} {op}" for op, number in environment.preview.counts().items())
    none = "no change" if environment.preview.is_whole else "not known"
    verdict = "**preview failed**" if environment.preview.errors else _verdict(environment)
    cells = [
        f"**{label(environment.preview.environment)}**",
        verdict,
        ", ".join(
            f"{axis}: {_in_words(axis, directions)}"
            for axis in AXES
            if (directions := environment.meaning.directions(axis))
        )
        or "unchanged",
        _policies(environment),
        counts or none,
    ]
    return f"| {' | '.join(cells)} |"


def _verdict(environment: ReviewedEnvironment) -> str:
    worst = environment.meaning.worst_for_workers
    groups = environment.meaning.groups(worst)
    where = (
        f": {', '.join(map(label, groups[:5]))}{' …' if len(groups) > 5 else ''}"
        if groups and worst >= Severity.WATCH
        else ""
    )
    return _VERDICTS[worst] + where if environment.is_changed else "no change"


def _cost(environment: ReviewedEnvironment) -> str:
    sentence = environment.cost
    return short(sentence.replace("|", "¦"), 120) if sentence else "unknown"


def _policies(environment: ReviewedEnvironment) -> str:
    preview = environment.preview
    rules = f" ({label(environment.rules)})" if environment.rules else ""
    mandatory, all_ = len(_mandatory(preview)), len(preview.violations)
    if not all_:
        passed = f"passed{rules}" if preview.is_whole else "not known"
        return passed if preview.has_policy_results else "not evaluated"
    parts = [f"**{mandatory} violated**"] if mandatory else []
    return ", ".join(parts + ([f"{all_ - mandatory} advisory"] if all_ > mandatory else [])) + rules


def _section(environment: ReviewedEnvironment) -> str:
    preview = environment.preview
    if not (preview.changes or preview.errors or preview.violations or environment.meaning.effects):
        return ""
    lines = [f"### {label(preview.environment)}", ""]
    lines += [f"- {line}" for line in _effects(environment.meaning)]
    lines += [f"- {note}" for note in environment.meaning.notes]
    if environment.meaning.untouched:
        lines.append(f"- workers not affected: {', '.join(map(label, environment.meaning.untouched))}")
    if preview.violations:
        ordered = sorted(preview.violations, key=lambda c: (c.level != "mandatory", c.policy, c.resource))
        policies = [
            f"- **{label(violation.level)}** {label(violation.policy)}: {code(violation.message, 400)}"
            for violation in ordered
        ]
        lines += ["", "Policies:", "", *_limited(list(dict.fromkeys(policies)), "policies")]
    for title, messages in (("Errors", preview.errors), ("Warnings", preview.warnings)):
        if messages:
            lines += ["", f"{title}:", "", _FENCE]
            lines += _limited([f"! {short(message, 600)}" for message in messages], title.lower())
            lines += [_FENCE]
    if environment.forecast.strip():
        text, heading, outline = map(str.strip, environment.forecast.partition(OUTLINE))
        if len(text) > _MAX_FORECAST_LENGTH:
            text = (
                text[:_MAX_FORECAST_LENGTH].rpartition("\n")[0]
                + "\n\n(truncated; the forecast continues in the full output)"
            )
        lines += ["", "<details><summary>Forecast</summary>", "", text, "", "</details>"]
        lines += ["", heading, "", outline] if heading else []
    return "\n".join([*lines, "", ""])


def _effects(meaning: Meaning) -> list[str]:
    """Return a line for each effect; effects of severity NOTHING are one line together."""
    lines = [_effect(effect) for effect in meaning.effects if effect.severity > Severity.NOTHING]
    return _limited(lines or ["no effect on workers, data, reach, alarms or control"], "effects")


def _effect(effect: Effect) -> str:
    subject = f"**{label(effect.group)}**: " if effect.group else ""
    limit = _MAX_UNKNOWN if effect.words == MAY_END else _MAX_LINES
    return (
        subject
        + effect.words
        + "".join(f"\n  - {line}" for line in _limited(list(effect.details), "details", limit))
    )


def _limited(lines: list[str], noun: str, limit: int = _MAX_LINES) -> list[str]:
    if len(lines) <= limit:
        return lines
    return [*lines[:limit], f"… and {len(lines) - limit} more {noun} in the full output"]


def _cut(sections: Sequence[str], room: int) -> list[str]:
    """Return the sections within ``room`` bytes; shorter sections leave their unused share to the others."""
    shortened = list(sections)
    for rank, index in enumerate(sorted(range(len(shortened)), key=lambda i: _size(shortened[i]))):
        share = room // (len(shortened) - rank)
        if _size(shortened[index]) > share:
            shortened[index] = _shortened(shortened[index], share)
        room -= _size(shortened[index])
    return shortened


def _shortened(section: str, max_size: int) -> str:
    note = "\n\n(truncated; see the full output)\n\n"
    text = section.encode()[: max(0, max_size - 64 - _size(note))].decode(errors="ignore").rpartition("\n")[0]
    closing = f"\n{_FENCE}" if text.count(_FENCE) % 2 else ""
    closing += "\n</details>" if text.count("<details>") > text.count("</details>") else ""
    return text + closing + note


def _diffs(environments: Sequence[ReviewedEnvironment], room: int) -> list[str]:
    """Return each environment's folded diff within ``room`` bytes in total, whole steps only."""
    blocks = [difference.steps(environment.preview) for environment in environments]
    folded = [""] * len(blocks)
    for rank, index in enumerate(sorted(range(len(blocks)), key=lambda i: sum(map(_size, blocks[i])))):
        folded[index] = _fold(blocks[index], room // (len(blocks) - rank))
        room -= _size(folded[index])
    return folded


def _fold(blocks: Sequence[str], max_size: int) -> str:
    if not blocks:
        return ""
    frame = 400  # summary, fence and closing tags
    included: list[str] = []
    used = frame
    for block in blocks:
        used += _size(block) + 1
        if used > max_size:
            break
        included.append(block)
    if not included:
        reference = f"({counted(len(blocks), 'change')}: see the full output for the diff)\n\n"
        return "" if max_size < frame else reference
    omitted = len(blocks) - len(included)
    rest = f", most severe first; {omitted} more in the full output" if omitted else ""
    part = f"{len(included)} of " if omitted else ""
    title = f"Diff: {part}{counted(len(blocks), 'change')}{rest}"
    body = "\n".join(included)
    return f"<details><summary>{title}</summary>\n\n{_FENCE}diff\n{body}\n{_FENCE}\n</details>\n\n"


def _mandatory(preview: Preview) -> list[str]:
    return [violation.policy for violation in preview.violations if violation.level == "mandatory"]


def _names(environments: Sequence[ReviewedEnvironment]) -> str:
    return ", ".join(code(environment.preview.environment) for environment in environments)


def _size(text: str) -> int:
    return len(text.encode())
