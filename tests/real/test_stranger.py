"""A stranger installs pulumi_on_moto from its wheel into a fresh environment and runs its example's test."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pulumi_on_moto"


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def constraints() -> str:
    """The lock's pins without their hashes: pip would want one for the wheel, too."""
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    return "".join(f"{pin}\n" for pin in re.findall(r"^([a-z0-9][^\\\n]*==[^\\\n]*?) *\\?$", lock, re.M))


def test_the_example_runs_from_the_wheel_alone(tmp_path: Path) -> None:
    # A copy is built, so that the checkout gets no build folder.
    shutil.copytree(PACKAGE, tmp_path / "source", ignore=shutil.ignore_patterns("*.egg-info", "build"))
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path]
    run(sys.executable, *build, tmp_path / "source", cwd=tmp_path)
    [wheel] = tmp_path.glob("*.whl")
    (tmp_path / "constraints.txt").write_text(constraints(), "utf-8")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    run(python, *install, "--constraint", tmp_path / "constraints.txt", wheel, "pytest", cwd=tmp_path)
    shutil.copytree(PACKAGE / "example", tmp_path / "example")
    where = run(python, "-I", "-c", "import pulumi_on_moto; print(pulumi_on_moto.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "venv")
    told = run(
        python, "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "example", cwd=tmp_path
    )
    assert "4 passed" in told
