"""Run a script of this folder in a process of its own: Pulumi's runtime and moto are global in one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE


def printed_by(script: str, *arguments: str) -> dict[str, Any]:
    """Return the JSON object that a script beside this file prints."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result
