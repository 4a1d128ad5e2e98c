"""The command as a user runs it: real processes and files, output and exit codes."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import pytest
import yaml

from gpu_spot import cli
from tests.apart import apart
from tests.docs.keys import documented
from tests.real.job import repository
from tests.waiting import TIMEOUT_SECONDS, run_process

COMMAND = Path(sys.executable).with_name("gpu-spot")
REPOSITORY = Path(__file__).parents[2]
CODE_HOST = "https://git.example.org"
SUMMARY_KEYS = {
    "resources",
    "resource_types",
    "hours",
    "target",
    "market",
    "availability",
    "cost_vs_on_demand",
    "interruptions",
    "launch_failures",
    "on_demand_starts",
    "wall_seconds",
}


def gpu_spot(*arguments: str | Path, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return run_process([COMMAND, *map(str, arguments)], cwd=cwd)


def forked(*arguments: str | Path, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    """The same in a process of ``apart``, which has imported it all: for what is not about its start."""
    return apart(_main, list(map(str, arguments)), cwd)


def run_command(arguments: list[str], cwd: Path = REPOSITORY) -> tuple[int, str]:
    """Run the command, in a process apart; return its exit status and what it says on standard error."""
    done = apart(_main, arguments, cwd)
    return done.returncode, done.stderr


def _main(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    os.chdir(cwd)
    with redirect_stdout(io.StringIO()) as shown, redirect_stderr(io.StringIO()) as said:
        try:
            code = cli.main(arguments)
        except SystemExit as wrong_usage:
            code = int(str(wrong_usage.code))
    return subprocess.CompletedProcess(arguments, code, shown.getvalue(), said.getvalue())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what a user edits, around the real program."""
    shutil.copy(REPOSITORY / "Pulumi.yaml", tmp_path)
    shutil.copytree(REPOSITORY / "stacks", tmp_path / "stacks")
    (tmp_path / "infra").symlink_to(REPOSITORY / "infra")
    return tmp_path


def test_the_demo_keeps_workers_alive_through_a_market(tmp_path: Path, traces: Path | None) -> None:
    week = traces / "availability" / "1-node" / "aws-02-15-2023" if traces else None
    files = sorted(week.glob("us-west-2*.json")) if week else []
    given = ["--trace", *files] if files else []
    hours = "72" if files else "12"  # the bound is of three days; the model interrupts more
    done = gpu_spot("demo", "--stack", "dev", "--hours", hours, "--target", "4", "--out", tmp_path, *given)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary.keys() >= SUMMARY_KEYS
    assert summary["market"] == ([str(f) for f in files] if files else "model")
    assert ("real traces" if files else "drawn from the fitted model") in " ".join(done.stdout.split())
    assert summary["interruptions"] > 0
    assert summary["on_demand_starts"] > 0
    assert summary["availability"] >= 0.9985
    assert summary["cost_vs_on_demand"] <= (0.33 if files else 0.6)
    assert "gpu-spot:infra:CapacityGroup" in done.stdout
    assert 30_000 < (tmp_path / "report.html").stat().st_size < 1_000_000


@pytest.mark.soak
def test_demo_and_deploy_print_one_document(tmp_path: Path) -> None:
    shown = forked("demo", "--hours", "1.5", "--target", "2", "--json", "--out", tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == (tmp_path / "summary.json").read_text()
    assert json.loads(shown.stdout).keys() >= documented("demo")
    assert "report.html" in shown.stderr
    output = json.loads(forked("deploy", "--local", "--json").stdout)
    assert output.keys() == documented("deploy")


@pytest.mark.soak
def test_deploy_prints_the_outputs() -> None:
    done = forked("deploy", "--local", "--stack", "dev", "--tree")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+ resources created in", done.stdout)
    for output in ("queueUrl", "memoryTable", "registryTable", "followDecisions"):
        assert output in done.stdout


@pytest.mark.soak
def test_keep_leaves_a_cloud_that_the_aws_tools_can_look_into(tmp_path: Path) -> None:
    command = ["demo", "--hours", "2", "--target", "2", "--keep", "--out", str(tmp_path)]
    with subprocess.Popen(
        [COMMAND, *command],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        # Where the tests run in the background of a shell they inherit that Ctrl-C is ignored.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        try:
            assert process.stdout is not None
            endpoint = next(
                m[0] for line in process.stdout if (m := re.search(r"http://127\.0\.0\.1:\d+", line))
            )
            assert 2 in desired_capacities(endpoint)
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=TIMEOUT_SECONDS) == 0


TERMINATED = """
import os, signal, sys
from types import SimpleNamespace
from gpu_spot import cli

def run(args):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        print("tidied up")

cli.parser = lambda _: SimpleNamespace(parse_args=lambda _: SimpleNamespace(run=run))
sys.exit(cli.main([]))
"""


def test_a_terminated_command_ends_its_child_processes() -> None:
    done = run_process([sys.executable, "-c", TERMINATED])
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "tidied up\n")


def test_a_command_that_needs_neither_a_local_cloud_nor_aws_imports_none() -> None:
    commands = ("forecast", "review", "schema")
    program = (
        "import sys; from gpu_spot import cli\n"
        "for name in sys.argv[1:]:\n"
        "    print(name, cli.parser(name) and sorted({'moto', 'boto3'} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", program, *commands]
    done = run_process(words, check=True)
    assert done.stdout.splitlines() == [f"{name} []" for name in commands]


def desired_capacities(endpoint: str) -> list[int]:
    look = (
        "import boto3; c = boto3.client('autoscaling', endpoint_url=%r, region_name='us-west-2');"
        "print([g['DesiredCapacity'] for g in c.describe_auto_scaling_groups()['AutoScalingGroups']])"
    )
    seen = run_process(
        [sys.executable, "-c", look % endpoint],
        env={**os.environ, "AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"},
        check=True,
    )
    found: list[int] = json.loads(seen.stdout)
    return found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--trace", "nowhere.json"], "trace nowhere.json does not exist"),
        (["demo", "--trace", "broken.json"], "trace broken.json is not JSON"),
        (["demo", "--trace", "negative.json"], "negative.json: data[1] must be a whole number ≥ 0, not -1"),
        (["demo", "--trace", "empty"], "trace folder empty holds no .json file"),
        (["demo", "--stack", "moon"], "stack 'moon': no file Pulumi.moon.yaml; stacks here: "),
        (["demo", "--notice-share", "1.5"], "'1.5' is not a number between 0 and 1"),
        pytest.param(
            ["demo", "--hours", "0.5"],
            "hours must be more than the warm-up of 60 minutes, not 0.5",
            marks=pytest.mark.soak,  # known once the stack is deployed
        ),
        (
            ["demo", "--stack", "research", "--target", "2"],
            "--target needs a service, not a stack without one",
        ),
        (
            ["demo", "--stack", "research", "--group", "resnet", "--target", "2"],
            "--target needs a service, not resnet",
        ),
        (["demo", "--target", "0"], "'0' is not a whole number of at least 1"),
        (["deploy", "--local", "--stack", "key"], "gpu-spot:services[0].capacity.spotPercent"),
        (["deploy", "--local", "--stack", "range"], "gpu-spot:services[0].capacity.spotPercentage"),
        (["deploy", "--local", "--stack", "top"], "gpu-spot:servces"),
        (["nonsense"], "invalid choice: 'nonsense'"),
    ],
)
def test_bad_input_gives_a_one_line_error(project: Path, arguments: list[str], message: str) -> None:
    (project / "broken.json").write_text("{")
    (project / "negative.json").write_text('{"metadata": {"gap_seconds": 60}, "data": [1, -1]}')
    (project / "empty").mkdir()
    dev = (project / "stacks" / "Pulumi.dev.yaml").read_text()
    (project / "stacks" / "Pulumi.key.yaml").write_text(dev.replace("spotPercentage:", "spotPercent:"))
    (project / "stacks" / "Pulumi.range.yaml").write_text(
        dev.replace("spotPercentage: 100", "spotPercentage: 101")
    )
    (project / "stacks" / "Pulumi.top.yaml").write_text(f"{dev}  gpu-spot:servces: []\n")
    code, said = run_command(arguments, project)
    assert code in (1, 2)
    lines = said.strip().splitlines()
    assert message in lines[-1]
    assert "Traceback" not in said
    assert len(lines) == 1 or lines[0].startswith("usage:")


def test_the_stack_files_name_the_shipped_commits() -> None:
    named = {}
    for path in (REPOSITORY / "stacks").glob("Pulumi.*.yaml"):
        for job in yaml.safe_load(path.read_text())["config"].get("gpu-spot:training", ()):
            if job["repository"].startswith(f"{CODE_HOST}/"):
                named[job["repository"].removeprefix(f"{CODE_HOST}/")] = job["revision"]
    assert "examples/resnet50-cifar10" in named
    assert named == {folder: repository.commit_of(REPOSITORY / folder) for folder in named}


@pytest.mark.soak
def test_the_demo_shows_every_move_of_the_volume(tmp_path: Path) -> None:
    done = forked("demo", "--stack", "research", "--group", "resnet", "--hours", "8", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    summary = json.loads((tmp_path / "summary.json").read_text())
    moves = summary["moves"]
    assert any(move["from"]["zone"] != move["to"]["zone"] for move in moves)
    assert all(move["content"]["equal"] for move in moves)
    assert all(move["steps_lost"] == 0 for move in moves if move["cause"] != "loss")
    assert all(min(move["parts"].values()) >= 0 for move in moves)
    assert 0 < summary["availability"] < 1
    page = (tmp_path / "report.html").read_text()
    assert "Spot 180 s, On-Demand 180 s until the agent starts" in page  # there is no warm pool
    for move in moves:
        assert move["to"]["volume"] in page
    assert f"moves {len(moves)} of the volume" in " ".join(done.stdout.replace("│", " ").split())
