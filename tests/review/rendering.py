"""Render a comment similar to GitHub: CommonMark with tables, folds and alerts, as wide as a pull request."""

from __future__ import annotations

import re
from typing import Final

from markdown_it import MarkdownIt

_STYLE: Final = """
body { font: 14px/1.5 sans-serif; color: #1f2328; width: 860px; margin: 16px auto; }
table { border-collapse: collapse; }
th, td { border: 1px solid #d1d9e0; padding: 4px 10px; text-align: left; }
code { background: #eff1f3; padding: 1px 4px; border-radius: 4px; font-size: 12px; overflow-wrap: anywhere; }
pre { background: #f6f8fa; padding: 12px; overflow: auto; } pre code { padding: 0; }
blockquote { margin: 0 0 12px; padding: 0 12px; border-left: 4px solid; }
.caution { border-color: #cf222e; } .warning { border-color: #9a6700; } .note { border-color: #0969da; }
.title { text-transform: capitalize; font-weight: bold; }
.caution .title { color: #cf222e; } .warning .title { color: #9a6700; } .note .title { color: #0969da; }
"""
_ALERT: Final = re.compile(r"<blockquote>\s*<p>\[!(CAUTION|WARNING|NOTE)\]\s*")


def page(text: str, script: str = "") -> str:
    """Return the page of a comment."""
    body = MarkdownIt("commonmark").enable("table").render(text)

    def alert(match: re.Match[str]) -> str:
        kind = match[1].lower()
        return f'<blockquote class="{kind}"><p class="title">{kind}</p><p>'

    head = f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>"
    return f"{head}{_ALERT.sub(alert, body)}<script>{script}</script>"
