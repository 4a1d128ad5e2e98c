"""The comment on a pull request: whose workers end, what it costs, what is forbidden, the diff folded.

GitHub takes 65,536 characters. Where there is more to say, diffs are cut first, then forecasts, then what
policies and the engine say, at last the words about workers; what was left out is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpu_spot.review import difference
from gpu_spot.review.consequences import Severity
from gpu_spot.review.judged import Judged
from gpu_spot.review.preview import Preview
from gpu_spot.review.text import code, plural, short
from gpu_spot.review.workers import Effect, Meaning

MARKER: Final = "<!-- gpu-spot preview -->"
"""The first line, by which the comment is found again and edited."""

LIMIT: Final = 65_536
"""GitHub's limit in characters; counted here in bytes, so that no way of counting finds more."""

_FENCE: Final = "~~~~~~~~"
_MOST_OF_A_FORECAST: Final = 6_000
_MOST_LINES: Final = 20
"""Details of one effect, complaints and diagnostics of one environment."""

_VERDICTS: Final = {
    Severity.NOTHING: "all stay",
    Severity.LATER: "all stay; later ones differ",
    Severity.WATCH: "look",
    Severity.ENDS: "**end**",
    Severity.LOST: "**something is lost**",
}


def comment(judged: Sequence[Judged], run: str = "", commit: str = "") -> str:
    """Return the comment's Markdown, at most ``LIMIT`` bytes long.

    Args:
        judged: the environments, the gravest first.
        run: the address of what ran, for what is left out here.
        commit: the commit that was looked at.
    """
    head = _head(judged, run, commit)
    # What is not diff may take all but a tenth; an environment has an equal share of what is left.
    sections = [_section(one) for one in judged]
    sections = _cut(sections, LIMIT * 9 // 10 - _size(head))
    left = LIMIT - _size(head) - sum(_size(one) for one in sections)
    diffs = _diffs(judged, left)
    return head + "".join(one + diff for one, diff in zip(sections, diffs, strict=True))


def _head(environments: Sequence[Judged], run: str, commit: str) -> str:
    told = f"Commit {commit[:12]}. " if commit else ""
    told += f"[The whole output]({run})." if run else ""
    rows = [
        "| environment | workers | cost | policies | resources |",
        "|---|---|---|---|---|",
        *(_row(one) for one in environments),
    ]
    alert = _alert(environments)
    return "\n".join([MARKER, *alert, "", *rows, "", *([told, ""] if told else [])]) + "\n"


def _alert(environments: Sequence[Judged]) -> list[str]:
    if not environments:
        return ["> [!CAUTION]", "> **No preview came.**"]
    failed = [one for one in environments if one.preview.errors]
    ending = [one for one in environments if one.meaning.worst >= Severity.ENDS]
    forbidden = [one for one in environments if _mandatory(one.preview)]
    lines = []
    if failed:
        lines.append(
            f"**The preview failed in {_names(failed)}.** What is below is what it had found by then."
        )
    if forbidden:
        lines.append(f"**A mandatory policy forbids this in {_names(forbidden)}.**")
    for one in ending:
        for severity, words in ((Severity.LOST, "Something is lost"), (Severity.ENDS, "Workers end")):
            found = [effect for effect in one.meaning.effects if effect.severity is severity]
            if found:
                where = ", ".join(dict.fromkeys(effect.group or "the stack" for effect in found))
                lines.append(f"**{words} in {code(one.preview.environment)}** ({where}).")
                break
    if lines:
        return ["> [!CAUTION]", *(f"> {line}<br>" for line in lines[:_MOST_LINES])]
    watched = [one for one in environments if one.meaning.worst is Severity.WATCH]
    if watched:
        return ["> [!WARNING]", f"> **No worker is ended at once, but look at {_names(watched)}.**"]
    if any(one.preview.changes for one in environments):
        return ["> [!NOTE]", "> **All workers stay.**"]
    return ["> [!NOTE]", "> **Nothing changes.**"]


def _row(one: Judged) -> str:
    counts = ", ".join(f"{number} {op}" for op, number in one.preview.counts().items()) or "no change"
    verdict = "**preview failed**" if one.preview.errors else _verdict(one)
    cells = [f"**{one.preview.environment}**", verdict, _cost(one), _policies(one.preview), counts]
    return f"| {' | '.join(cells)} |"


def _verdict(one: Judged) -> str:
    worst = one.meaning.worst
    groups = one.meaning.groups(worst)
    where = (
        f": {', '.join(groups[:5])}{' …' if len(groups) > 5 else ''}"
        if groups and worst >= Severity.WATCH
        else ""
    )
    return _VERDICTS[worst] + where if one.preview.changes else "no change"


def _cost(one: Judged) -> str:
    said = one.cost
    return short(said.replace("|", "¦"), 120) if said else "not known"


def _policies(preview: Preview) -> str:
    mandatory, all_ = len(_mandatory(preview)), len(preview.complaints)
    if not all_:
        return "kept" if preview.is_judged else "not known"
    told = [f"**{mandatory} violated**"] if mandatory else []
    return ", ".join(told + ([f"{all_ - mandatory} advisory"] if all_ > mandatory else []))


def _section(one: Judged) -> str:
    preview = one.preview
    if not preview.changes and not preview.errors and not preview.complaints:
        return ""
    lines = [f"### {preview.environment}", ""]
    lines += [f"- {line}" for line in _effects(one.meaning)]
    if one.meaning.untouched:
        lines.append(f"- untouched: {', '.join(one.meaning.untouched)}")
    if preview.complaints:
        ordered = sorted(preview.complaints, key=lambda c: (c.level != "mandatory", c.policy, c.resource))
        told = [f"- **{one.level}** {one.policy}: {short(one.message, 400)}" for one in ordered]
        lines += ["", "Policies:", "", *_most(list(dict.fromkeys(told)), "policies")]
    for title, messages in (("Errors", preview.errors), ("Warnings", preview.warnings)):
        if messages:
            lines += ["", f"{title}:", "", _FENCE]
            lines += _most([f"! {short(message, 600)}" for message in messages], title.lower())
            lines += [_FENCE]
    if one.forecast.strip():
        text = one.forecast.strip()
        if len(text) > _MOST_OF_A_FORECAST:
            text = (
                text[:_MOST_OF_A_FORECAST].rpartition("\n")[0]
                + "\n\n(the forecast goes on in the whole output)"
            )
        lines += ["", "<details><summary>Forecast</summary>", "", text, "", "</details>"]
    return "\n".join([*lines, "", ""])


def _effects(meaning: Meaning) -> list[str]:
    """Return a line for each effect; what no worker notices is one line together."""
    told = [_effect(one) for one in meaning.effects if one.severity > Severity.NOTHING]
    return _most(told or ["no worker notices anything"], "effects")


def _effect(one: Effect) -> str:
    subject = f"**{one.group}**: " if one.group else ""
    return subject + one.words + "".join(f"\n  - {line}" for line in _most(list(one.details), "details"))


def _most(lines: list[str], what: str) -> list[str]:
    if len(lines) <= _MOST_LINES:
        return lines
    return [*lines[:_MOST_LINES], f"… and {len(lines) - _MOST_LINES} more {what}, in the whole output"]


def _cut(sections: Sequence[str], room: int) -> list[str]:
    """Return the sections within ``room`` bytes, each with an equal share of what the shorter ones leave."""
    kept = list(sections)
    for place, index in enumerate(sorted(range(len(kept)), key=lambda i: _size(kept[i]))):
        share = room // (len(kept) - place)
        if _size(kept[index]) > share:
            kept[index] = _shortened(kept[index], share)
        room -= _size(kept[index])
    return kept


def _shortened(section: str, most: int) -> str:
    note = "\n\n(cut here: the rest stands in the whole output)\n\n"
    text = section.encode()[: max(0, most - 64 - _size(note))].decode(errors="ignore").rpartition("\n")[0]
    closing = f"\n{_FENCE}" if text.count(_FENCE) % 2 else ""
    closing += "\n</details>" if text.count("<details>") > text.count("</details>") else ""
    return text + closing + note


def _diffs(environments: Sequence[Judged], room: int) -> list[str]:
    """Return each environment's folded diff, whole steps only, within ``room`` bytes in all."""
    blocks = [difference.steps(one.preview) for one in environments]
    folded = [""] * len(blocks)
    for place, index in enumerate(sorted(range(len(blocks)), key=lambda i: sum(map(_size, blocks[i])))):
        folded[index] = _fold(blocks[index], room // (len(blocks) - place))
        room -= _size(folded[index])
    return folded


def _fold(blocks: Sequence[str], most: int) -> str:
    if not blocks:
        return ""
    frame = 400  # summary, fence, and what is said of the rest
    kept: list[str] = []
    used = frame
    for block in blocks:
        used += _size(block) + 1
        if used > most:
            break
        kept.append(block)
    if not kept:
        return (
            ""
            if most < frame
            else f"({plural(len(blocks), 'change')}: the diff stands in the whole output)\n\n"
        )
    left = len(blocks) - len(kept)
    rest = f", the gravest first; {left} more stand in the whole output" if left else ""
    title = (
        f"Diff: {len(kept)} of {plural(len(blocks), 'change')}{rest}"
        if left
        else f"Diff: {plural(len(kept), 'change')}"
    )
    body = "\n".join(kept)
    return f"<details><summary>{title}</summary>\n\n{_FENCE}diff\n{body}\n{_FENCE}\n</details>\n\n"


def _mandatory(preview: Preview) -> list[str]:
    return [one.policy for one in preview.complaints if one.level == "mandatory"]


def _names(environments: Sequence[Judged]) -> str:
    return ", ".join(code(one.preview.environment) for one in environments)


def _size(text: str) -> int:
    return len(text.encode())
