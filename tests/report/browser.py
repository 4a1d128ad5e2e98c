"""A real browser, controlled by its command line."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.waiting import TIMEOUT_SECONDS

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

    def dom(self, page: Path, width: int, height: int) -> str:
        """Return the document after its scripts have run."""
        return self._call(page, width, height, "--dump-dom")

    def picture(self, page: Path, width: int, height: int, target: Path, *, dark: bool = False) -> Path:
        """Write a screenshot at half scale to ``target``."""
        flags = [f"--screenshot={target}", "--force-device-scale-factor=0.5"]
        if dark:
            flags.append("--blink-settings=preferredColorScheme=0")
        self._call(page, width, height, *flags)
        return target

    def _call(self, page: Path, width: int, height: int, *flags: str) -> str:
        command = [
            self.program,
            *_FLAGS,
            f"--user-data-dir={self.profile}",
            f"--window-size={width},{height}",
        ]
        done = subprocess.run(
            [*command, *flags, page.as_uri()], capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
        assert done.returncode == 0, done.stderr
        return done.stdout
