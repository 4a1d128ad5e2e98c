"""Environments with real frameworks: built once for each lock, in ``out/environments``, and kept there.

Tests of the libraries and of the product use them; ``python packages/environments.py NAME …`` builds some.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCKS = Path(__file__).parent / "locks"
TRAINING = Path(__file__).parent / "spot-training"
FRAMEWORKS = TRAINING / "tests" / "frameworks"
"""What plays ``spot_training`` on frameworks: the package ``frameworks`` for a script there."""
WHOLE = ".whole"


class NotInstalledError(Exception):
    """An environment could not be installed; the text says which, and the end of what was said."""


def environment(name: str) -> Path:
    """Return the ``bin`` of the environment that ``locks/NAME.txt`` describes, for this Python.

    Two processes that ask for it wait for one installation; one that was killed half-way is begun again.
    """
    lock = LOCKS / f"{name}.txt"
    key = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ROOT / "out" / "environments" / f"{name}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (folder / WHOLE).exists():
            for old in folder.parent.glob(f"{name}-*"):
                shutil.rmtree(old)
            _install(lock, sys.executable, "-m", "venv", folder)
            pip: list[str | Path] = [folder / "bin" / "pip", "install"]
            # Without bytecode: what is imported writes its own, and most of it never is.
            pip += ["--quiet", "--disable-pip-version-check", "--no-compile", "--no-cache-dir", "--no-deps"]
            _install(lock, *pip, "--require-hashes", "-r", lock)
            (folder / WHOLE).touch()
    return folder / "bin"


def main() -> None:
    """Build the environments that the arguments name, so that no test waits for them."""
    for name in sys.argv[1:]:
        environment(name)


def _install(lock: Path, *command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = " ".join(done.stderr.split())[-500:]
        raise NotInstalledError(f"{lock.name} needs a package index and cannot be installed: {said}")


def variables(place: Path) -> dict[str, str]:
    """Return this process's variables, without a job's, for a script that imports ``spot_training``."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("GPU_SPOT_")}
    own.pop("PYTHONDONTWRITEBYTECODE", None)  # bytecode of a framework is worth seconds a start
    return {
        **own,
        "PATH": f"{place}:{own['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(TRAINING / "src"), str(FRAMEWORKS.parent)]),
        "OMP_NUM_THREADS": "1",
        "PYTHONFAULTHANDLER": "1",
    }


def play(place: Path, script: str | Path, *arguments: str | Path, seconds: float) -> dict[str, Any]:
    """Run a module of ``frameworks``, or a file, in the environment of ``place``; return its JSON."""
    named = [script] if isinstance(script, Path) else ["-m", f"frameworks.{script}"]
    command = [place / "python", *named, *arguments]
    done = subprocess.run(
        command, env=variables(place), cwd=ROOT, capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
