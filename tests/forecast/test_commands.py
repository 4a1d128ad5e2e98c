"""``gpu-spot forecast`` from the command line, with stubbed forecasts of slots."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpu_spot.cli import main
from gpu_spot.declared.stackfile import StackConfig
from gpu_spot.forecast import fixed_costs, running
from gpu_spot.forecast.ranges import SlotForecast
from gpu_spot.forecast.replayed import Question
from gpu_spot.preflight.stack import Declared, Stack
from infra.schema import Settings
from tests.docs.commands import code_block_commands
from tests.docs.keys import documented
from tests.forecast.conftest import WEEK, job, pods, service, stack_file, with_cluster


class Command:
    """``gpu-spot forecast`` with a NAT gateway, an alarm for each group, and stubbed forecasts of slots."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.asked: list[Question] = []
        self.error = ""
        """What was said on standard error."""

    def run(self, *options: str, status: int = 0, **files: dict[str, Any]) -> str:
        """Return what it prints of these stack files, ``base`` and ``head``."""
        arguments = list(options)
        for name, config in files.items():
            file = self.folder / f"{name}.yaml"
            file.write_text(yaml.safe_dump({"config": config}))
            arguments += [f"--{name}", str(file)]
        assert main(["forecast", *arguments]) == status
        shown = self._capsys.readouterr()
        self.error = shown.err
        return shown.out

    def forecast_slots(self, questions: Sequence[Question], *_: Any) -> list[SlotForecast]:
        self.asked.extend(questions)
        return [WEEK for _ in questions]


def declared(versions: Sequence[tuple[StackConfig, Settings]], _: object) -> list[Callable[[], Stack]]:
    def whole(config: StackConfig, settings: Settings) -> Stack:
        _, times = fixed_costs.reduce_entries(config)
        alarm = {"namespace": "gpu-spot"}
        made = [Declared("aws:ec2/natGateway:NatGateway", "nat", {})]
        made += [Declared("aws:cloudwatch/metricAlarm:MetricAlarm", f"{name}-boot", alarm) for name in times]
        return fixed_costs.multiply(Stack("x", settings, made), times, settings)

    return [partial(whole, *version) for version in versions]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    made = Command(tmp_path, capsys)
    monkeypatch.setattr(running, "forecast_slots", made.forecast_slots)
    monkeypatch.setattr(running, "declared", declared)
    monkeypatch.setattr(running, "processes", lambda count: contextlib.nullcontext())
    return made


def test_a_change_is_reported_by_group_and_in_total(command: Command) -> None:
    base = stack_file([service("same"), service("old"), service("more", target=8)])
    head = stack_file([service("same"), service("more", target=16), service("new")])
    document = json.loads(command.run("--json", base=base, head=head))
    month = 0.4 * 730 * 0.8048
    disks = 125 * 0.08
    # eight slots more for one; of the two others one comes and one goes
    assert document.keys() == documented("forecast") | {"base", "difference"}
    # Metrics, heartbeats and logs of eight more instances, less than a dollar each.
    usage = document["difference"]["month"] - 8 * (month + disks)
    assert 8 * 0.16 < usage < 8
    assert document["difference"]["interruptions"] == pytest.approx(8 * 3.0)
    assert [group["name"] for group in document["head"]["groups"]] == ["same", "more", "new"]
    assert document["head"]["groups"][0].keys() == {
        *("name", "slots", "cost", "on_demand", "volumes", "availability"),
        *("interruptions", "lost_minutes", "none_ready", "remarks", "runs_on"),
    }
    assert {line["what"]: line["count"] for line in document["head"]["lines"]}["alarms"] == 3
    assert "modelled from public Spot traces" in document["basis"]["market"]
    assert "no recent week of us-west-2 was seen" in document["basis"]["market"]
    assert "skypilot-catalog" in document["basis"]["spot"]
    assert document["basis"]["oldest"] == "2026-01"
    assert "2026-11" in document["basis"]["on_demand"]
    assert len(command.asked) == 1  # groups that are alike, and unchanged ones, are replayed once


def test_markdown_has_changes_ranges_and_sources(command: Command) -> None:
    base = stack_file([service("old"), service("more", target=8)])
    head = stack_file([service("more", target=16), service("new")])
    text = command.run("--markdown", base=base, head=head)
    assert "| more | 16 (was 8) | $3,920 (+$1,960) | $2,980 to $5,800 |" in text
    assert "(new)" in text
    assert "~~old~~" in text
    assert "months old)" in text or "1 month old)" in text
    assert "Market: modelled from public Spot traces" in text
    assert "four weeks in five of a market that was never seen" in text
    assert "; oldest price: 2026-01" in text.splitlines()[0]
    assert "| 48 (16 to 140) |" in text  # two digits, with their range


def test_a_move_to_kubernetes_is_reported_with_what_is_not_counted(command: Command) -> None:
    base, head = (with_cluster(stack_file([entry])) for entry in (service("ocr"), pods(service("ocr"))))
    text = command.run(base=base, head=head)
    assert "| ocr (Kubernetes, was instances) | 8 |" in text
    assert "- other: $32.85 NAT gateways (1), " in text
    not_owned = (
        "EKS cluster research, which is not part of the stack: its control plane ($73, in extended support "
        "$438)"
    )
    assert f"- not counted: {not_owned}" in text
    document = json.loads(command.run("--json", head=head))["head"]
    assert [group["runs_on"] for group in document["groups"]] == ["kubernetes"]
    assert [one for one in document["not_counted"] if one.startswith(not_owned)]


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (("--max-monthly-increase", "1000"), 3, "more than the permitted $1,000.00"),
        (("--max-monthly-increase", "5000"), 0, ""),
        (
            ("--min-availability", "0.9995"),
            3,
            "the availability of more is 0.99900, which is less than the required 0.9995",
        ),
        (("--min-availability", "0.998"), 0, ""),
        (("--min-availability", "1.5"), 2, "--min-availability must be from 0 to 1, not 1.5"),
    ],
)
def test_a_threshold_is_an_exit_status(
    command: Command, options: tuple[str, ...], status: int, says: str
) -> None:
    base, head = (stack_file([service("more", target=target)]) for target in (8, 16))
    command.run(*options, status=status, base=base, head=head)
    assert says in command.error


def test_warnings_of_the_new_file_are_printed_once(command: Command) -> None:
    late = {"deadline": "2026-01-01T00:00:00Z"}
    base, head = (stack_file([], jobs) for jobs in ([job("one", **late)], [job("new"), job("one", **late)]))
    command.run(base=base, head=head)
    warnings = [line for line in command.error.splitlines() if "has passed" in line]
    assert [line.partition(":")[2].partition(":")[0] for line in warnings] == ["training[1].deadline"]


def test_invalid_input_is_reported_in_one_line(command: Command) -> None:
    wrong, good = (stack_file([service("more", target=target)]) for target in (-1, 8))
    none = str(command.folder / "none")
    for options, files, says in (
        ([], {"head": wrong}, "head.yaml: gpu-spot:services[0].capacity.target must be at least 0, not -1"),
        (["--head", f"{none}.yaml"], {}, "none.yaml cannot be read (no such file or directory); name "),
        (["--max-monthly-increase", "1"], {"head": good}, "--max-monthly-increase requires --base"),
        (["--max-monthly-increase", "nan"], {"base": good, "head": good}, "must be a number of US dollars"),
        (["--trace", none], {"head": good}, "none does not exist"),
    ):
        command.run(*options, status=2, **files)
        assert says in command.error
        assert command.error.count("\n") == 1


def test_a_threshold_on_an_unknown_cost_is_exceeded(command: Command) -> None:
    text = json.dumps(stack_file([service("inference")])).replace("us-west-2", "ap-east-2")
    file = json.loads(text)
    first, *lines = command.run("--max-monthly-increase", "1", status=3, base=file, head=file).splitlines()
    assert "the instances of inference: not priced, so --max-monthly-increase cannot be checked" in (
        command.error
    )
    assert first.endswith(", **without the instances of inference: not priced**")
    priced = "| inference | 8 | not priced; volumes and addresses $80.00 |"
    assert any(line.startswith(priced) for line in lines)
    assert any("- at prices of us-east-1, until make prices: volumes, NAT gateways" in line for line in lines)


LINES = [
    one.line for one in code_block_commands() if one.page == "docs/forecast.md" and "gpu-spot" in one.line
]


@pytest.mark.parametrize("line", LINES)
def test_commands_of_the_page_run(
    line: str,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = Path(__file__).parents[2]
    shutil.copy(root / "Pulumi.yaml", tmp_path)
    for copy in (tmp_path / "stacks", tmp_path / "main" / "stacks"):
        copy.mkdir(parents=True)
        shutil.copy(root / "stacks" / "Pulumi.prod.yaml", copy)
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(line)
    assert program == ".venv/bin/gpu-spot"
    assert main(arguments) in {0, 3}  # 3: a threshold of the line is exceeded
    assert command.asked
    assert "$" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("zones", "says"),
    [
        (("us-west-2a", "us-west-2b"), "Market: recorded traces. A range contains four weeks in five."),
        (("us-east-1a",), "Market: recorded traces of us-east-1a; no week of us-west-2 was seen. A range"),
        (("us-east-1a", "us-west-2a"), "Market: recorded traces of us-east-1a and us-west-2. A range"),
    ],
)
def test_a_market_of_another_region_is_named(command: Command, zones: tuple[str, ...], says: str) -> None:
    traces = command.folder / "traces"
    traces.mkdir()
    samples = {"metadata": {"gap_seconds": 600}, "data": [0] * 2000}
    for zone in zones:
        (traces / f"{zone}_v100_1.json").write_text(json.dumps(samples))
    assert says in command.run("--trace", str(traces), head=stack_file([service("inference")]))


def test_data_on_efs_is_counted_or_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_files(versions: Sequence[tuple[StackConfig, Settings]], _: object) -> list[Callable[[], Stack]]:
        files = [Declared("aws:efs/fileSystem:FileSystem", "files", {})]
        return [partial(Stack, "x", settings, files) for _, settings in versions]

    monkeypatch.setattr(running, "declared", with_files)
    head = stack_file([service("inference")])
    assert "- not counted: data on EFS: --file-system-gib is 0" in command.run(head=head)
    assert "$30.00 GiB on EFS (100)" in command.run("--file-system-gib", "100", head=head)


def test_a_forecast_of_the_model_names_it_and_promises_no_recorded_weeks(command: Command) -> None:
    head = stack_file([service("inference")])
    trace = command.folder / "us-west-2a_g6.xlarge.json"
    trace.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [1] * 1200}))
    text = command.run(head=head)
    assert "modelled from public Spot traces of V100 instances" in text
    assert "no recent week of us-west-2 was seen" in text
    assert "A range contains four weeks in five" not in text
    text = command.run("--trace", str(trace), head=head)
    assert "Market: recorded traces." in text
    assert "modelled" not in text
    assert "maxPrice" not in text
    limited = stack_file([service("inference", maxPrice=0.01)])
    assert "Market: recorded traces, as if without maxPrice of inference." in command.run(
        "--trace", str(trace), head=limited
    )
    assert "weeks in five" in text
