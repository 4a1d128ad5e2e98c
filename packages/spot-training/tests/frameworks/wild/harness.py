"""Kill the scripts of habits, and compare weights and curves with those of an uninterrupted run.

``python -m frameworks.wild.harness --folder F --kills 20 [--jobs 2] [--only plateau …]`` prints JSON. Each
start is a fork of a process that has imported PyTorch. A kill is a SIGKILL, or a notice: SIGTERM, and SIGKILL
after a grace period. It comes at a random moment, or as soon as the script is at a mark (its first step, the
start of its workers, a validation, the export), or at a file operation of a save.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from spot_training.storage.files import Files

FORK = multiprocessing.get_context("fork")
RANKS = ("stream+2", "stream_state+2", "webdataset_ranks")
"""Streams read by two ranks of gloo: ``+2``, a script for one."""
TORCH = ("plateau", "fabric", "stream")
MORE = ("stream_state", "stream_stateful", "webdataset_shards", "lora")
MOSAIC = ("mosaic",)
"""Needs an environment of its own."""
LIGHTNING = ("lightning_plateau", "lightning_early", "lightning_manual")
STREAMS = ("lightning_stream", "lightning_stream_state", "lightning_stream_ranks")
"""Streams in Lightning."""
SCRIPTS = (*TORCH, *MORE, *LIGHTNING, *RANKS, *STREAMS)
GRACE_SECONDS = 3.0
MAX_FRUITLESS = 4
"""Starts in a row that take no step and do not end the script: then it is stuck."""
MAX_KILLS = 24
"""Of one run."""
MARKS = ("step", "workers", "validation", "export")
TIMEOUT_SECONDS = 60.0


class Training:
    """One run of a script in a folder, as one process or as several ranks."""

    def __init__(self, module: Any, folder: Path, ranks: str = "") -> None:
        self._module, self.folder = module, folder
        folder.mkdir(parents=True)
        self.ranks = int(ranks or getattr(module, "RANKS", 1))
        self.processes: list[Any] = []
        self._read = 0
        self.repeated = getattr(module, "REPEATED", 0)
        """Batches that a notice during a validation may repeat."""
        self.faults: list[str] = []

    def start(self, dies_at: int = 0) -> None:
        """Start it; with ``dies_at`` a rank kills itself at that file operation."""
        self._read = len(self.marks())
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.processes = [
            FORK.Process(target=self._main, args=(rank, port, dies_at if rank == dies_at % self.ranks else 0))
            for rank in range(self.ranks)
        ]
        for process in self.processes:
            process.start()

    def _main(self, rank: int, port: int, dies_at: int) -> None:
        os.setsid()
        with (self.folder / "log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        if self.ranks > 1:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"}
            os.environ |= {"WORLD_SIZE": str(self.ranks), "LOCAL_WORLD_SIZE": str(self.ranks)}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            os.environ |= {"GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "1"}  # Lightning then starts none itself
        if dies_at:
            count = [0]

            def touch(files: Files, operation: str, path: Path) -> None:
                count[0] += 1
                if count[0] == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)

            Files.touch = touch  # type: ignore[method-assign]
        self._module.main(self.folder)

    @property
    def exitcode(self) -> int | None:
        """Of the ranks: None while one runs, else that of a killed one, of one that failed, or 0."""
        codes = [process.exitcode for process in self.processes]
        return None if None in codes else min(codes) or max(codes)

    def signal(self, number: int, ranks: list[int]) -> None:
        """Send a signal to some ranks that run."""
        for rank in ranks:
            if self.processes[rank].exitcode is None:
                os.kill(self.processes[rank].pid, number)

    def marks(self) -> list[str]:
        """Return the lines of all starts."""
        path = self.folder / "marks"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def new_marks(self) -> list[str]:
        """Return the lines of this start."""
        return self.marks()[self._read :]

    def has_ended(self) -> bool:
        """Tell whether a process has ended; then all have."""
        self.processes[0].join(0.001)
        if all(process.exitcode is None for process in self.processes):
            return False
        self.end(TIMEOUT_SECONDS)
        return True

    def end(self, seconds: float) -> None:
        """Wait for it for some time, then kill it; a rank that failed ends the others, as under torchrun."""
        limit, has_sent = time.monotonic() + seconds, False
        while None in [process.exitcode for process in self.processes] and time.monotonic() < limit:
            if not has_sent and any(process.exitcode for process in self.processes):
                has_sent = True
                self.signal(signal.SIGTERM, list(range(self.ranks)))
            running = [process for process in self.processes if process.exitcode is None]
            for process in running[:1]:  # none, if the last one has ended since
                process.join(0.005)
        for process in self.processes:
            process.kill()
            process.join()

    def newest(self) -> int:
        """Return the newest step of any checkpoint folder."""
        names = (self.folder / "checkpoints").rglob("step-*")
        return max((int(path.name[5:]) for path in names), default=0)

    def log(self) -> str:
        """Return the end of what it printed."""
        path = self.folder / "log"
        return path.read_text()[-1500:] if path.exists() else ""

    def result(self) -> str:
        """Return weights and curve; empty without an export."""
        path = self.folder / "final"
        return path.read_text() if path.exists() else ""


def steps(marks: list[str]) -> list[int]:
    """Return the steps in some marks."""
    return [int(mark.split()[1]) for mark in marks if mark.startswith("step ")]


def interrupt(training: Training, chance: random.Random, seconds: float, counts: Counter[str]) -> None:
    """Start it and interrupt it once, if it does not end before."""
    kind = chance.choice(("moment", "moment", "mark", "save"))
    is_notice = kind != "save" and chance.random() < 0.5
    operation = chance.randrange(1, 120) if kind == "save" else 0
    training.start(dies_at=operation)
    began, mark, delay = time.monotonic(), chance.choice(MARKS), chance.uniform(0, 0.06)
    moment = chance.uniform(0, seconds / 2)  # most of a run is done when it starts again
    while not training.has_ended():
        now = time.monotonic()
        if kind == "moment" and now - began > moment:
            break
        if kind == "mark" and any(line.startswith(mark) for line in training.new_marks()):
            time.sleep(delay)
            break
        if now - began > TIMEOUT_SECONDS:
            counts["hung"] += 1
            break
    if training.has_ended():
        counts["saves hit"] += kind == "save" and training.exitcode == -signal.SIGKILL
        return
    before = training.new_marks()
    is_listening = bool(steps(before))  # the loop has its handler
    ranks = list(range(training.ranks))
    hit = chance.choice([ranks, *([rank] for rank in ranks)]) if len(ranks) > 1 else ranks
    training.signal(signal.SIGTERM if is_notice else signal.SIGKILL, hit)
    training.end(GRACE_SECONDS if is_notice else TIMEOUT_SECONDS)
    counts["notices" if is_notice else "sigkills"] += 1
    counts[f"at {mark}" if kind == "mark" else "at a moment"] += 1
    if is_notice and is_listening and "export 0" not in before:
        lost = max(steps(training.new_marks())) - training.newest()
        if lost > training.repeated:
            counts["lost steps"] += lost
            training.faults.append(
                f"{lost} steps lost with a notice, after {before[-1]}: {training.log()[-300:]}"
            )


def play(name: str, folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """Kill runs of one script so many times; let each run to its end and compare it."""
    script, _, ranks = name.partition("+")
    module = importlib.import_module(f"frameworks.wild.{script}")
    reference = Training(module, folder / name / "reference", ranks)
    began = time.monotonic()
    reference.start()
    reference.end(TIMEOUT_SECONDS)
    seconds, wanted = time.monotonic() - began, reference.result()
    if not wanted:
        raise SystemExit(f"{name}: the uninterrupted run failed: {reference.log()}")
    chance, counts, faults = random.Random(f"{name} {seed}"), Counter[str](), list[str]()
    number, began = 0, time.monotonic()
    while kills_of(counts) < kills:
        training = Training(module, folder / name / f"run-{number}", ranks)
        number += 1
        fruitless = 0
        for _ in range(chance.randrange(1, MAX_KILLS)):
            interrupt(training, chance, seconds, counts)
            if training.exitcode == 0 and training.result():
                break
            if training.exitcode not in (0, -signal.SIGKILL, -signal.SIGTERM):
                counts["failures"] += 1
                faults.append(f"{name}: exit code {training.exitcode}: {training.log()[-500:]}")
        while not (training.exitcode == 0 and training.result()):
            training.start()
            training.end(TIMEOUT_SECONDS)
            fruitless = fruitless + 1 if training.exitcode else 0
            if fruitless == MAX_FRUITLESS:
                counts["stuck"] += 1
                faults.append(f"{name}: stuck: {training.log()[-500:]}")
                break
            if training.exitcode == 0 and not training.result():
                counts["exports lost"] += 1
                break
        counts["mismatches"] += training.result() != wanted
        faults += [f"{name}: {fault}" for fault in training.faults]
        counts["tracebacks"] += (
            training.ranks == 1
            and 'File "/' in training.log()
            and "/packages/spot-training/src/" in training.log()
        )  # workers of a killed parent have others, and ranks that lose one
    played = {"runs": number, "kills": kills_of(counts), "seconds": round(time.monotonic() - began, 1)}
    return {**played, **counts, "faults": faults}


def kills_of(counts: Counter[str]) -> int:
    """Return how many kills there were."""
    return counts["notices"] + counts["sigkills"] + counts["saves hit"]


def main() -> None:
    """Play what the arguments say; the last line is the sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=10, help="of each script")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="scripts that are played at a time")
    parser.add_argument("--only", nargs="*", default=SCRIPTS)
    given = parser.parse_args()
    results: dict[str, Any] = {}
    importlib.import_module("frameworks.wild.common")  # once, before the forks
    with ProcessPoolExecutor(given.jobs, mp_context=FORK) as players:
        played = {
            players.submit(play, name, given.folder, given.kills, given.seed): name for name in given.only
        }
        for player in as_completed(played):
            results[played[player]] = player.result()
            sys.stderr.write(f"{played[player]}: {json.dumps(player.result())}\n")

    def total(key: str) -> int:
        return sum(result.get(key, 0) for result in results.values())

    summary = {
        "wild_scripts": len(results),
        "wild_kills": total("kills"),
        "wild_mismatches": total("mismatches"),
        "stuck_runs": total("stuck") + total("hung"),
        "exports_lost": total("exports lost"),
        "failed_starts": total("failures"),
        "tracebacks": total("tracebacks"),
        "lost_steps_with_notice": total("lost steps"),
        "faults": [fault for result in results.values() for fault in result["faults"]],
        "scripts": results,
    }
    sys.stdout.write(json.dumps(summary) + "\n")


if __name__ == "__main__":
    main()
