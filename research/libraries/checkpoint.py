"""Kill real trainings and compare their results; measure the cost of saving.

    python -m research.libraries.checkpoint [--out FILE] [--kills 50] [--seconds 60] [--only keras …]

Each part runs in the environment of its framework (``packages/locks``), with the code of ``make test-real``,
which uses 5 kills of each kind. A kill is a SIGTERM, as at the notice, a SIGKILL at a random moment, or a
SIGKILL at one file operation of a save. ``lost_seconds_without_notice`` is from the last commit to the kill.
The overhead is that of a Keras model whose save takes a second or more, with the defaults of ``Interval``.
``stall``: the pause of a 1 GB state's save beside ``torch.save`` and ``dcp.async_save``, alternating; the
price of saves where it decides the interval; the memory and reads of a restore by four ranks. ``memory``:
``memory_restart_s``, from the imports of a killed training to its first step, from a save in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from packages.environments import environment, variables
from research.parts import needs
from research.parts.page import replace_part, table
from research.parts.run import parser_of, write

MOSAIC: Final = ("mosaic",)
"""The script that needs an environment of its own."""
PARAMETERS: Final = 40_000_000
ROUND: Final = 10
"""Kills of each kind in a round."""


@dataclass(frozen=True)
class Part:
    """One training: its framework, its script, and its parameters."""

    name: str
    framework: str
    script: str
    arguments: Sequence[str] = ()
    at_random: bool = True
    """Whether it is also killed at random moments."""
    harness: str = "kills"
    """The script that starts and kills it; gets ``script`` as its argument unless that is empty."""


QUICK: Final = ("--each-write", "--option", "pause=0", "--option", "every=1e-9")
PARTS: Final = (
    Part("keras", "keras", "train_keras"),
    Part("keras, each write", "keras", "train_keras", (*QUICK, "--option", "validation=false"), False),
    Part("orbax", "keras", "train_orbax"),
    Part("torch", "torch", "train_torch"),
    Part("torch, each write", "torch", "train_torch", QUICK, False),
    Part("torch, two ranks", "torch", "train_torch", ("--ranks", "2")),
    Part("transformers", "torch", "train_trainer"),
    Part("transformers, two ranks", "torch", "train_trainer", ("--ranks", "2")),
    Part("resnet50", "tensorflow", "", harness="resnet_kills"),
)


WILD: Final = ("wild_scripts", "wild_kills", "wild_mismatches", "stuck_runs", "exports_lost")
"""Counters of the scripts of habits."""


FOLDER: Final = "{folder}"
"""In an argument: a new folder, deleted after the script."""


def report_of(framework: str, script: str, *arguments: str) -> dict[str, Any]:
    """Run a script of ``frameworks`` in its environment; return the JSON that it prints last."""
    binaries = environment(framework)
    with tempfile.TemporaryDirectory(prefix="gpu-spot-") as folder:
        filled = [argument.replace(FOLDER, folder) for argument in arguments]
        done = subprocess.run(  # noqa: S603 - a script of the repository
            [binaries / "python", "-m", f"frameworks.{script}", *filled],
            env=variables(binaries),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def killed(part: Part, kills: int) -> Iterator[dict[str, Any]]:
    """Run one part in rounds, each with its own seed; yield the counters of each round."""
    remaining = kills if part.at_random else 0
    script = (part.script,) if part.script else ()
    for seed in range(max(1, -(-remaining // ROUND))):
        count = str(min(ROUND, remaining - seed * ROUND))
        kinds = ("--terms", count, "--kills", count, "--seed", str(seed)) if part.at_random else ()
        arguments = (*script, "--folder", f"{FOLDER}/jobs", *kinds, *part.arguments)
        yield {"part": part.name, **report_of(part.framework, part.harness, *arguments)}


def wild(kills: int, framework: str = "torch", scripts: Sequence[str] = ()) -> dict[str, Any]:
    """Kill each script of habits (``frameworks.wild``) so many times; return the counters.

    ``scripts``: some of them; default: those of PyTorch's environment.
    """
    arguments = ["--folder", f"{FOLDER}/jobs", "--kills", str(kills), "--jobs", "2"]
    return report_of(framework, "wild.harness", *arguments, *(("--only", *scripts) if scripts else ()))


def added(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sum of two reports of `wild`: counters are added, lists and mappings joined."""
    return {
        name: {**value, **second[name]} if isinstance(value, Mapping) else value + second[name]
        for name, value in first.items()
    }


def overheads(seconds: float, parameters: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure the ways to save in sequence; ours until its second save.

    Keras: ours, its own callback, a naive save; PyTorch: asynchronous and blocking.
    """
    for way in ("ours", "framework", "naive"):
        arguments = (f"{FOLDER}/{way}", way, str(seconds), str(parameters))
        yield way, report_of("keras", "overhead_keras", *arguments)
    yield "torch", report_of("torch", "overhead_torch", f"{FOLDER}/torch")


STALL: Final = (
    *("stall_vs_torch_save", "stall_vs_dcp", "step_beside_save", "step_beside_dcp", "storage_share"),
    *("pause_seconds", "step_seconds", "extra_memory", "storage_reads"),
)
"""Figures of the pause of a save, and of a restore."""


def stalls(megabytes: int) -> dict[str, Any]:
    """Measure a save of so many megabytes, and a restore of a tenth of it by four ranks."""
    saving = report_of("torch", "stall_torch", f"{FOLDER}/save", str(megabytes), "5")
    parameters = str(megabytes * 1_000_000 // 240)
    restoring = report_of("torch", "restore_torch", f"{FOLDER}/restore", "4", parameters)
    return {**restoring, **saving}


def memory_restarts(megabytes: Sequence[int]) -> dict[str, Any]:
    """Kill trainings with states of such sizes and restart them from memory; return figures by size.

    ``memory_restart_s``: of the first size.
    """
    by_size = {size: report_of("torch", "memory_torch", FOLDER, str(size), "3") for size in megabytes}
    return {
        "memory_restart_s": by_size[megabytes[0]]["memory_restart_s"],
        "memory_restarts": by_size,
        "memory_lost_saves": sum(report["lost_saves"] for report in by_size.values()),
    }


def page_part(stall: Mapping[str, Any]) -> str:
    """Return the page's part about the pause of a save."""
    pause, step = stall["pause_seconds"], stall["step_seconds"]
    ways = (("`torch.save`, not flushed", "torch_save"), ("`dcp.async_save`", "dcp"), ("`Loop`", "loop"))
    rows = [
        (name, f"{pause[way]:.2f} s", f"{step[way] / step['alone']:.2f}" if way in step else "")
        for name, way in ways
    ]
    return "\n\n".join(
        (
            "## What a save of PyTorch costs",
            f"A state of {stall['megabytes']:,} MB with Adam, on two shared CPU cores, ways alternating in"
            f" one process, medians of {stall['rounds']} saves, at a load of {stall['load']} by other work on"
            " the machine. `Loop` pauses training for"
            f" {stall['stall_vs_torch_save']:.2f} times as long as `torch.save` (aim: 0.15) and"
            f" {stall['stall_vs_dcp']:.2f} times as long as `dcp.async_save` (aim: 1.0); a step beside its"
            f" save takes {stall['step_beside_save']:.2f} times as long (aim: 1.1).",
            table(("way", "pause", "a step beside it, of one alone"), rows),
            f"Four ranks that restore one checkpoint read it {stall['storage_reads']:.2f} times from storage"
            f" and need {stall['extra_memory']:.2f} times its size of memory in addition to the model. Where"
            f" prices decide the interval, saves cost {100 * stall['storage_share']:.1f} % of the instance's"
            " price (aim: 5). Not measured: a GPU, EFS.",
        )
    )


def summary(
    rounds: Sequence[Mapping[str, Any]],
    cost: Mapping[str, Any],
    habits: Mapping[str, Any],
    stall: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the counters summed over all rounds."""

    def total(name: str) -> int:
        return sum(round_.get(name, 0) for round_ in rounds)

    def worst(name: str) -> float:
        return max((round_.get(name, 0) for round_ in rounds), default=0)

    kills_of = Counter[str]()
    for part_round in rounds:
        kills_of[part_round["part"]] += part_round.get("kills", 0)
    return {
        **{name: total(name) for name in ("kills", "sigterm", "sigkill", "mismatches", "unreadable")},
        "at_a_write": total("writes"),
        "faults": [fault for part_round in (*rounds, habits) for fault in part_round.get("faults", ())],
        **{name: habits.get(name, 0) for name in WILD},
        **{name: stall.get(name) for name in STALL},
        "lost_steps_with_notice": worst("lost_steps_with_notice"),
        "lost_seconds_without_notice": worst("lost_seconds_without_notice"),
        "overhead_fraction": cost.get("ours", {}).get("fraction"),
        "overhead_fraction_framework": cost.get("framework", {}).get("fraction"),
        "overhead_fraction_naive": cost.get("naive", {}).get("fraction"),
        "kills_of": dict(sorted(kills_of.items())),
        "rounds": list(rounds),
        "overhead": cost,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return 1 if anything was lost, duplicated or unreadable."""
    parser = parser_of(__doc__, "checkpoint", docs=True)
    parser.add_argument("--kills", type=int, default=50, help="of each kind, in each part")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each way to save is measured")
    parser.add_argument("--parameters", type=int, default=PARAMETERS)
    parser.add_argument("--only", nargs="*", help="parts that begin so, wild, overhead, stall, memory")
    parser.add_argument("--megabytes", type=int, default=1000, help="of the state whose save is timed")
    options = parser.parse_args(arguments)

    def is_selected(name: str) -> bool:
        return options.only is None or any(name.startswith(prefix) for prefix in options.only)

    needed = {part.framework for part in PARTS if is_selected(part.name)}
    needed |= {"torch"} if any(map(is_selected, ("wild", "stall", "memory"))) else set()
    needed |= {"mosaic"} if is_selected("wild") else set()
    needs.frameworks(sorted(needed | ({"keras", "torch"} if is_selected("overhead") else set())))
    rounds: list[dict[str, Any]] = []
    cost: dict[str, Any] = {}
    for part in PARTS:
        for result in killed(part, options.kills) if is_selected(part.name) else ():
            rounds.append(result)
            print(json.dumps(result), flush=True)
    for way, result in overheads(options.seconds, options.parameters) if is_selected("overhead") else ():
        cost[way] = result
        print(json.dumps({"way": way, **result}), flush=True)
    habits: dict[str, Any] = {}
    if is_selected("wild"):
        habits = added(wild(2 * options.kills), wild(2 * options.kills, "mosaic", MOSAIC))
    stall = stalls(options.megabytes) if is_selected("stall") else {}
    if stall:
        replace_part(options.docs, "checkpoint", page_part(stall))
    result = summary(rounds, cost, habits, stall)
    result |= memory_restarts((400, 1000)) if is_selected("memory") else {}
    write(options.out, result)
    print(json.dumps({name: value for name, value in result.items() if name not in ("rounds", "overhead")}))
    wrong = ("mismatches", "unreadable", "memory_lost_saves", "wild_mismatches", "stuck_runs", "exports_lost")
    lost = len(result["faults"]) + sum(result.get(name, 0) for name in wrong)
    return 1 if lost or result["lost_steps_with_notice"] > 1 else 0


if __name__ == "__main__":
    sys.exit(main())
