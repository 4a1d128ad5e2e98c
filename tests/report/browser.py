"""A real browser, controlled by its command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.waiting import run_process

_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=6000",
)


@dataclass(frozen=True)
class Browser:
    """Headless Chromium with a profile of its own."""

    program: str
    profile: Path

    def dom(self, page: Path, width: int, height: int, *, dark: bool = False) -> str:
        """Return the document after its scripts have run."""
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        return self._call(page, width, height, "--dump-dom", *scheme)

    def _call(self, page: Path, width: int, height: int, *flags: str) -> str:
        command = [
            self.program,
            *_FLAGS,
            f"--user-data-dir={self.profile}",
            f"--window-size={width},{height}",
        ]
        done = run_process([*command, *flags, page.as_uri()])
        assert done.returncode == 0, done.stderr
        return done.stdout
