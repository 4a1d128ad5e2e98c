"""Run a library's tests where nothing else of the repository can be imported.

    .venv/bin/python -I -S packages/alone.py spot-training [arguments for pytest]

``-I -S`` leave out the working directory, the environment and every ``.pth`` file, by which the rest of the
repository is installed; the packages of the environment and the library's ``src`` are put back by hand.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARIES = sorted(path.parent.name for path in HERE.glob("*/pyproject.toml"))
ENVIRONMENT = Path(sys.executable).absolute().parents[1]
IN_MEMORY = "/dev/shm"  # noqa: S108


def main(name: str, *arguments: str) -> int:
    """Run the tests; return pytest's exit status."""
    base = {"base": str(ENVIRONMENT), "platbase": str(ENVIRONMENT)}
    source = HERE / name / "src"
    # Without ``site`` Debian's Python takes its own scheme, of packages outside any environment.
    sys.path += [sysconfig.get_path("purelib", "venv", base), str(source)]
    if os.access(IN_MEMORY, os.W_OK):  # a disk takes milliseconds for each fsync
        os.environ.setdefault("TMPDIR", IN_MEMORY)
    # Plugins that are found by themselves are also those of the other libraries.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    own = (path.stem for path in source.glob("pytest_*.py"))
    os.environ["PYTEST_PLUGINS"] = ",".join(["_hypothesis_pytestplugin", *own])
    import pytest

    settings = str(HERE / name / "pyproject.toml")
    return int(
        pytest.main(["-c", settings, str(HERE / name / "tests"), str(HERE / "test_alone.py"), *arguments])
    )


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in LIBRARIES:
        sys.exit(f"which library? name one of: {', '.join(LIBRARIES)}")
    sys.exit(main(*sys.argv[1:]))
