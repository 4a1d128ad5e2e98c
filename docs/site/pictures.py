"""Draw docs/img/src/*.mmd with Mermaid's command line: `make pictures`.

Needs Node.js (`npx`) and a system Chromium. Each picture contains the hash of its text, by which a test
detects outdated pictures.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

IMAGES: Final = Path(__file__).resolve().parents[1] / "img"
MERMAID: Final = "@mermaid-js/mermaid-cli@11"
CONFIG: Final = {
    "theme": "neutral",
    "htmlLabels": False,
    "flowchart": {"htmlLabels": False, "curve": "monotoneY"},
    "fontFamily": "Helvetica, Arial, sans-serif",
}
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def sources() -> list[Path]:
    """Return the text of every picture."""
    return sorted((IMAGES / "src").glob("*.mmd"))


def picture(source: Path) -> Path:
    """Return the path of a text's picture."""
    return IMAGES / f"{source.stem}.svg"


def mark(source: Path) -> str:
    """Return the first comment of a text's picture."""
    digest = hashlib.sha256(source.read_bytes() + json.dumps(CONFIG).encode()).hexdigest()[:16]
    return f"<!-- drawn from src/{source.name} {digest}: make pictures -->\n"


def draw(source: Path, browser: str) -> None:
    """Write the picture of a text; raise ``CalledProcessError`` if Mermaid rejects it."""
    with tempfile.TemporaryDirectory() as folder:
        config, launch, drawn = (Path(folder) / name for name in ("config.json", "browser.json", "out.svg"))
        config.write_text(json.dumps(CONFIG), "utf-8")
        launch.write_text(json.dumps({"executablePath": browser, "args": ["--no-sandbox"]}), "utf-8")
        command = ["npx", "--yes", "--package", MERMAID, "mmdc", "--quiet", "-b", "white"]
        command += ["-p", str(launch), "-c", str(config), "-i", str(source), "-o", str(drawn)]
        # The system's browser is used; puppeteer must not download one.
        subprocess.run(command, check=True, env={**os.environ, "PUPPETEER_SKIP_DOWNLOAD": "1"})
        picture(source).write_text(mark(source) + drawn.read_text("utf-8") + "\n", "utf-8")


def main() -> int:
    """Draw every outdated picture; return the exit code."""
    stale = [
        s
        for s in sources()
        if not picture(s).exists() or not picture(s).read_text("utf-8").startswith(mark(s))
    ]
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if stale and not (browser and shutil.which("npx")):
        sys.stderr.write(f"make pictures needs npx and one of {', '.join(BROWSERS)} on PATH\n")
        return 2
    for source in stale:
        draw(source, browser or "")
        sys.stdout.write(f"{picture(source).relative_to(IMAGES.parent.parent)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
