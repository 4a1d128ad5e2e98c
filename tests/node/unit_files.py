"""The agent's unit files, as systemd reads them."""

from __future__ import annotations

import shlex
from collections import defaultdict
from pathlib import Path

from userdata.agent import cli

UNITS = Path(cli.__file__).parent / "units"
NAMES = sorted(path.stem for path in UNITS.glob("*.service"))


def settings(unit: str) -> dict[str, list[str]]:
    """Return a unit's settings: the values of each key, in their order."""
    result: defaultdict[str, list[str]] = defaultdict(list)
    for line in (UNITS / f"{unit}.service").read_text("utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            result[key].append(value)
    return result


def environment(unit: str) -> dict[str, str]:
    """Return the variables of a unit's commands (systemd.exec(5), "Environment Variables in Spawned")."""
    result = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG": "C.UTF-8", "USER": "root"}
    result |= {"INVOCATION_ID": "0" * 32, "JOURNAL_STREAM": "8:1", "SYSTEMD_EXEC_PID": "1"}
    for line in settings(unit)["Environment"]:
        result |= dict(one.split("=", 1) for one in shlex.split(line))
    if directories := settings(unit)["RuntimeDirectory"]:
        result["RUNTIME_DIRECTORY"] = f"/run/{directories[0]}"
    return result
