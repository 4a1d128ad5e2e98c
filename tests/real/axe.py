"""What axe-core finds on pages, read in a real browser: run by test_site.py in its own environment.

``python axe.py FOLDER WIDTH SCHEME PAGE…`` prints as JSON, by page, what is serious or critical, and what is
wider than the window; it leaves a picture of the window in ``FOLDER``. A scheme is light or dark.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import axe_playwright_python.sync_playwright as axe
from playwright.sync_api import sync_playwright

WRONG = {"serious", "critical"}


def main(pictures: Path, width: int, scheme: str, pages: list[Path]) -> None:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    found: dict[str, list[str]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        page = context.new_page()
        page.set_default_timeout(60_000)
        for path in pages:
            page.goto(path.as_uri())
            page.wait_for_function(
                "!document.getElementById('data') || document.documentElement.dataset.drawn"
            )
            name = f"{re.sub(r'[^a-z0-9]+', '-', path.stem.lower())}-{width}-{scheme}"
            page.screenshot(path=pictures / f"{path.parent.name}-{name}.png")
            wide = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            answer = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response
            found[f"{path.parent.name}/{name}"] = [
                f"{one['impact']} {one['id']}: {node['target']} {node['failureSummary']}"
                for one in answer["violations"]
                if one["impact"] in WRONG
                for node in one["nodes"][:5]
            ] + ([f"wider than the window by {wide}"] if wide > 0 else [])
        context.close()
        browser.close()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], [Path(one) for one in sys.argv[4:]])
