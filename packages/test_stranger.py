"""A stranger installs our distributions from their wheels into a fresh environment, and uses them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from infra.archives import agent, functions, zip_file
from packages.environments import environment

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {
    "pulumi_on_moto": "pulumi-on-moto",
    "spot_training": "spot-training",
    "spot_work": "spot-work",
}
PACKAGES = ("contracts", "gpu_spot", "infra", "lambdas", "market", "policy", "rehearsal", "userdata")
PRODUCT = (
    *PACKAGES,
    *("stacks", "setup.py", "pyproject.toml", "requirements.lock", "Pulumi.yaml", "README.md", "LICENSE"),
)
"""What the product's wheel is built of."""
SURVIVES = """
from spot_training import Checkpointer
kept = Checkpointer("kept")
for step in (1, 2):
    kept.save(step, lambda folder: (folder / "model").write_text(str(step)))
saved = kept.restore()
print(saved.step, (saved.part() / "model").read_text())
"""
ASKS = """
import time
from spot_work import Client, ExpiredError
begun = time.monotonic()
with Client("amqp://127.0.0.1:9", "pages") as pages:
    try:
        pages.request(b"a page", timeout=1)
    except ExpiredError:
        print("expired", time.monotonic() - begun >= 1)
"""


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


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    left_out = shutil.ignore_patterns("*.egg-info", "build", "__pycache__")
    for (
        name,
        folder_name,
    ) in DISTRIBUTIONS.items():  # copies are built, so that the checkout gets no build folder
        shutil.copytree(ROOT / "packages" / folder_name, folder / "sources" / name, ignore=left_out)
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    for name in PRODUCT:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (folder / "sources/gpu_spot").mkdir(exist_ok=True)
        copy(
            ROOT / name,
            folder / "sources/gpu_spot" / name,
            **({"ignore": left_out} if copy is shutil.copytree else {}),
        )
    run(sys.executable, *build, *(folder / "sources").iterdir(), cwd=folder)
    return {wheel.name.partition("-")[0]: wheel for wheel in folder.glob("*.whl")}


def environment_with(folder: Path, *asked: object) -> Path:
    """Return the Python of a new environment, with what pip is asked for and what that needs."""
    (folder / "constraints.txt").write_text(constraints(), "utf-8")
    venv.create(folder / "venv")
    python = folder / "venv/bin/python"
    install = ["-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-compile", "--constraint", folder / "constraints.txt"]
    run(sys.executable, *install, *options, *asked, cwd=folder)
    return python


def installed(folder: Path, wheel: Path, *requirements: str) -> Path:
    """Return the Python of a new environment with a wheel, what that needs, and nothing of the checkout."""
    python = environment_with(folder, wheel, *requirements)
    package = wheel.name.partition("-")[0]
    where = run(python, "-I", "-c", f"import {package}; print({package}.__file__)", cwd=folder)
    assert Path(where.strip()).is_relative_to(folder / "venv")
    return python


@pytest.mark.parametrize("name", [*DISTRIBUTIONS, "gpu_spot"])
def test_an_index_would_show_the_wheel_well(name: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    result = run(environment("wheels") / "twine", "check", "--strict", wheels[name], cwd=tmp_path)
    assert "PASSED" in result
    with zipfile.ZipFile(wheels[name]) as wheel:
        files = wheel.namelist()
        [metadata] = [one for one in files if one.endswith(".dist-info/METADATA")]
        shown = message_from_string(wheel.read(metadata).decode())
    assert name == "gpu_spot" or f"{name}/py.typed" in files
    assert shown["Author"] == "gpu-spot developers"
    assert name != "pulumi_on_moto" or f"{name}/pulumi-plugin.json" in files
    assert any(one.endswith("/licenses/LICENSE") for one in files)
    assert not [one for one in files if "test" in one.split("/")[0]] or name == "pulumi_on_moto"
    assert "Programming Language :: Python :: 3" in shown.get_all("Classifier", [])
    assert (shown["License-Expression"], shown["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    # Where only the page is shown, a link to a file of the checkout leads nowhere.
    assert not re.findall(r"\]\((?!https://|#)[^)]*\)", str(shown.get_payload()))


@pytest.mark.soak
def test_the_example_runs_from_the_wheel_alone(wheels: dict[str, Path], tmp_path: Path) -> None:
    python = installed(tmp_path, wheels["pulumi_on_moto"], "pytest")
    shutil.copytree(ROOT / "packages" / "pulumi-on-moto" / "example", tmp_path / "example")
    result = run(
        python, "-I", "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "example", cwd=tmp_path
    )
    assert "4 passed" in result


def test_a_checkpoint_survives_in_a_script_with_the_wheel_alone(
    wheels: dict[str, Path], tmp_path: Path
) -> None:
    python = installed(tmp_path, wheels["spot_training"])
    assert run(python, "-I", "-c", SURVIVES, cwd=tmp_path).split() == ["2", "2"]
    listed = run(python.with_name("spot-training"), "verify", "kept", cwd=tmp_path)
    assert [line.split()[-1] for line in listed.splitlines()] == ["whole", "whole"]


def test_a_caller_with_the_wheel_alone_gets_an_error_in_time(wheels: dict[str, Path], tmp_path: Path) -> None:
    python = installed(tmp_path, wheels["spot_work"])
    assert run(python, "-I", "-c", ASKS, cwd=tmp_path).split() == ["expired", "True"]
    assert "MODULE:FUNCTION" in run(python.with_name("spot-work"), "--help", cwd=tmp_path)


def test_the_products_wheel_has_each_file_and_the_archives_of_the_checkout(wheels: dict[str, Path]) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    with zipfile.ZipFile(wheels["gpu_spot"]) as wheel:
        # Requirements that refer to the lock of a checkout are of no use without it.
        assert {one for one in tracked if not one.endswith("/requirements.txt")} - set(
            wheel.namelist()
        ) == set()
        for name, sources in (("agent", agent.sources()), ("functions", functions.sources())):
            assert wheel.read(f"infra/archives/built/{name}.zip") == zip_file.pack(sources)


@pytest.mark.soak
def test_the_quick_start_needs_the_wheels_alone(wheels: dict[str, Path], tmp_path: Path) -> None:
    python = environment_with(tmp_path, wheels["gpu_spot"], wheels["pulumi_on_moto"])
    where = run(python, "-I", "-c", "import infra; print(infra.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path / "venv")
    command = python.with_name("gpu-spot")
    assert "deploy --local --stack mine" in run(command, "new", "shop", "--stack", "mine", cwd=tmp_path)
    shop = tmp_path / "shop"
    deployed = json.loads(run(command, "deploy", "--local", "--stack", "mine", "--json", cwd=shop))
    assert len(deployed["resources"]) > 100
    run(command, "demo", "--stack", "mine", "--hours", "1.5", cwd=shop)
    assert "</html>" in (shop / "out/demo/report.html").read_text("utf-8")


@pytest.mark.soak
def test_the_programs_of_a_checkout_are_imported_where_it_is_installed_in_place(tmp_path: Path) -> None:
    """As the template's requirements.txt does; into an environment with what pyproject.toml names alone."""
    left_out = ("*.egg-info", "build", "__pycache__", "out", ".*", "spot-training", "spot-work")
    checkout = tmp_path / "gpu-spot"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(*left_out))
    python = environment_with(tmp_path, "--editable", checkout)
    for module in ("infra.package.components", "policy.evaluation", "userdata.agent.cli", "contracts.names"):
        where = run(python, "-I", "-c", f"import {module} as it; print(it.__file__)", cwd=tmp_path)
        assert Path(where.strip()).is_relative_to(checkout)
