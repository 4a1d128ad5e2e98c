"""Run this package's tests where nothing else of the repository can be imported.

    .venv/bin/python -I -S pulumi_on_moto/tests/alone.py [arguments for pytest]

``-I -S`` leave out the working directory, the environment and every ``.pth`` file, by which the rest of the
repository is installed; the packages of the environment and this one's ``src`` are put back by hand.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = Path(sys.executable).absolute().parents[1]

packages = sysconfig.get_path("purelib", vars={"base": str(ENVIRONMENT), "platbase": str(ENVIRONMENT)})
sys.path += [packages, str(HERE.parent / "src")]

import pytest  # noqa: E402

if __name__ == "__main__":
    sys.exit(pytest.main(["-c", str(HERE.parent / "pyproject.toml"), str(HERE), *sys.argv[1:]]))
