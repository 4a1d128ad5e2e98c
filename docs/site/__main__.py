"""``make site``: the pages of this repository as a site, in ``out/site/html``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from docs.site.stage import ROOT, DeadLinkError, pages, stage
from packages.environments import environment

SITE_DIRECTORY = Path(__file__).parent


def named(nav: Any) -> list[str]:
    """Return the pages that a table of contents names."""
    if isinstance(nav, str):
        return [nav]
    inside = nav if isinstance(nav, list) else nav.values()
    return [page for item in inside for page in named(item)]


def configuration(staged_pages: set[str]) -> str:
    """Return the generator's configuration with the existing pages as its contents."""
    records = ["adr/README.md", *sorted(page for page in staged_pages if re.match(r"adr/\d", page))]
    text = (SITE_DIRECTORY / "zensical.toml").read_text("utf-8").replace('"adr/*.md"', json.dumps(records))
    nav = named(tomllib.loads(text)["project"]["nav"])
    lines = [
        line for line in text.splitlines() if not any(f'"{page}"' in line for page in {*nav} - staged_pages)
    ]
    more = sorted(page for page in staged_pages - {*nav} if "/" not in page)
    if more:
        at = lines.index("[project.theme]")
        closing = max(number for number, line in enumerate(lines[:at]) if line == "]")
        lines.insert(
            closing, f'  {{ "More" = [{", ".join(f"{chr(34)}{page}{chr(34)}" for page in more)}] }},'
        )
    return "\n".join(lines) + "\n"


def build(target: Path) -> Path:
    """Stage the pages and run the generator in strict mode; return the folder of the site.

    Raises:
        DeadLinkError: A link or an anchor is dead; with the generator's message.
    """
    stage(target / "pages")
    for extra in ("site.css", "site.js"):
        shutil.copyfile(SITE_DIRECTORY / extra, target / "pages" / extra)
    (target / "zensical.toml").write_text(configuration(set(pages().values())), "utf-8")
    command = [environment("site") / "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=target, capture_output=True, text=True, env={"NO_COLOR": "1"})
    if done.returncode:
        raise DeadLinkError(done.stdout + done.stderr)
    return target / "html"


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build(ROOT / 'out' / 'site')}/index.html\n")
    except DeadLinkError as error:
        sys.exit(str(error))
