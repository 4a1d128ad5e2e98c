"""docs/contract.md against the code: no variable, time or limit on the page is another than the agent's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.agent import names
from contracts.agent.config import Config, Training
from tests.node.bench import Bench
from tests.node.clocks import FakeClock
from tests.node.metadata import MetadataServer
from userdata.agent.tasks import costs, recording
from userdata.agent.tasks.groups import studies
from userdata.agent.work import containers, notice, process
from userdata.agent.work.failures import faults
from userdata.agent.work.training import job_container, train, variables
from userdata.agent.work.training.train import Trainer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/contract.md").read_text("utf-8")
UNIT = (ROOT / "userdata/agent/units" / names.UNIT_RUN).read_text("utf-8")


def rows(heading: str) -> dict[str, str]:
    """The first table below a heading, by its first column."""
    table = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("|")]
    return {cells[0].strip(): " | ".join(cells[1:]).strip() for cells in lines[2:]}


@pytest.fixture
def trainer(tmp_path: Path, clock: FakeClock, metadata_server: MetadataServer) -> Iterator[Trainer]:
    bench = Bench(tmp_path, clock, metadata_server)
    yield bench.trainer("true")
    bench.close()


@pytest.fixture
def environment(trainer: Trainer) -> dict[str, str]:
    return trainer._environment(3)


def test_the_table_names_each_variable_and_no_other(environment: dict[str, str]) -> None:
    named = {name for cell in rows("The environment") for name in re.findall(r"`([A-Z_]+)`", cell)}
    of_task = {recording.INTERRUPTIONS_VARIABLE, costs.INSTANCE_VARIABLE, costs.STORAGE_VARIABLE}
    of_task |= {variables.LOCAL_VARIABLE, studies.REPORTS_VARIABLE}
    assert named == {*environment, *of_task}


def test_the_values_on_the_page_are_those_that_a_job_gets(environment: dict[str, str]) -> None:
    documented = rows("The environment")
    assert f"`{environment['HOME']}` and its `.cache`" in documented["`HOME`, `XDG_CACHE_HOME`"]
    assert environment["XDG_CACHE_HOME"] == f"{environment['HOME']}/.cache"
    assert f"`{environment['TMPDIR']}`" in documented["`TMPDIR`"]
    assert (
        f"`{environment['LANG']}`, `{environment['PYTHONUNBUFFERED']}`"
        in documented["`PATH`, `LANG`, `PYTHONUNBUFFERED`"]
    )
    assert documented["`USER`, `LOGNAME`"] == f"`{names.JOB_USER}`"
    assert environment["GPU_SPOT_RESTARTS"] == "3"
    seconds = documented["`TORCH_ELASTIC_SHUTDOWN_TIMEOUT`"]
    assert seconds.startswith(f"`{environment['TORCH_ELASTIC_SHUTDOWN_TIMEOUT']}`: ")


def test_a_jobs_own_environment_overrides_ours_but_not_the_names_of_gpu_spot(trainer: Trainer) -> None:
    ours = trainer._environment(0)
    theirs = dict.fromkeys(ours, "theirs")
    object.__setattr__(trainer._training, "environment", theirs)
    got = trainer._environment(0)
    assert {name for name in got if got[name] == "theirs"} == {
        name for name in ours if not name.startswith("GPU_SPOT_")
    }


def test_the_times_on_the_page_are_the_agents() -> None:
    documented = rows("The time")
    default = Config.__dataclass_fields__["poll_seconds"].default
    assert (
        f"{notice.SPOT_NOTICE_SECONDS:.0f} s before it takes the instance; heard within {default:.0f} s"
        in PAGE
    )
    killed = documented["killed with SIGKILL, all that is left"]
    assert killed.startswith(f"{process.GIVE_BACK_SECONDS:.0f} s before that")
    shutdown = documented["a shutdown or `systemctl stop` without a notice"]
    assert shutdown == f"{process.STOP_SECONDS:.0f} s, then killed"
    left = documented["what the command leaves behind when it ends"]
    assert left == f"SIGTERM, {process.LEFTOVER_SECONDS:.0f} s, SIGKILL"
    defaults = {name: field.default for name, field in Training.__dataclass_fields__.items()}
    end = " ".join(f"{key} {value}" for key, value in rows("The end").items())
    assert (
        f"after {faults.MIN_DELAY_SECONDS:.0f} s, then twice as long each time up to "
        f"{faults.MAX_DELAY_SECONDS:.0f} s" in end
    )
    assert f"`maxRestarts` failures in a row (default {defaults['max_restarts']})" in end
    assert f"`stalledAfterMinutes` (default {defaults['stalled_after_minutes']})" in end
    assert f"killed {train._STALL_GRACE_SECONDS:.0f} s later" in end


def test_the_limits_on_the_page_are_the_units() -> None:
    [files] = re.findall(r"^LimitNOFILE=(\d+)$", UNIT, re.M)
    assert f"{int(files):,} open files, unlimited pinned memory and tasks, no core dumps" in PAGE
    assert {"LimitMEMLOCK=infinity", "TasksMax=infinity", "LimitCORE=0"} <= set(UNIT.splitlines())


def test_a_container_has_the_same_limits_and_the_shares_on_the_page() -> None:
    [files] = re.findall(r"^LimitNOFILE=(\d+)$", UNIT, re.M)
    assert set(containers.LIMITS) == {f"nofile={files}:{files}", "memlock=-1:-1", "core=0"}
    assert job_container._SHARED_MEMORY_SHARE == 0.5
    assert f"capped at {job_container._MEMORY_LIMIT_SHARE:.0%}".replace("%", " %") in PAGE
    assert {"PATH", "USER"} <= set(job_container._HOST_VARIABLES)


def test_the_shortest_script_is_python() -> None:
    [script, loader] = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    compile(script, "contract.md", "exec")
    compile(loader, "contract.md", "exec")
