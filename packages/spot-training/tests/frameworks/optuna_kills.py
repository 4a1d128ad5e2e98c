"""Kill workers of examples/optuna again and again; print what it found, as JSON.

``python -m frameworks.optuna_kills FOLDER KILLS TERMS`` runs in Optuna's environment.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).resolve().parents[4] / "examples/optuna"
WORKERS, TRIALS = 2, 20
LIMIT_SECONDS = 600.0


def start(folder: Path, worker: int) -> subprocess.Popen[bytes]:
    paths = {"GPU_SPOT_CHECKPOINTS": folder / f"worker-{worker}", "GPU_SPOT_DONE": folder / f"done-{worker}"}
    environment = {name: str(path) for name, path in paths.items()}
    with (folder / "log").open("a") as log:
        return subprocess.Popen(
            [sys.executable, EXAMPLE / "train.py"],
            env={**os.environ, **environment, "WORKER": str(worker), "TRIALS": str(TRIALS)},
            stdout=log,
            stderr=log,
        )


def has_saved(process: subprocess.Popen[bytes], folder: Path, since: float) -> bool:
    """Wait for a checkpoint of a worker; return whether it has saved one before it ended."""
    while process.poll() is None:
        if any(path.stat().st_mtime > since for path in folder.glob("trial-*/step-*")):
            return True
        time.sleep(0.05)
    return False


def run(folder: Path, signals: list[int]) -> dict[str, Any]:
    """Run the study with these signals, each to the next worker; return its trials, and exit codes."""
    folder.mkdir(parents=True)
    chance, codes = random.Random(1), []
    processes = {worker: start(folder, worker) for worker in range(WORKERS)}
    began = dict.fromkeys(processes, 0.0)
    while signals:
        worker = len(signals) % WORKERS
        process = processes[worker]
        if not has_saved(process, folder / f"worker-{worker}", began[worker]):
            break  # the study has ended
        time.sleep(chance.uniform(0, 0.5))
        process.send_signal(number := signals.pop())
        codes.append((number, process.wait(LIMIT_SECONDS)))
        processes[worker], began[worker] = start(folder, worker), time.time()
    ends = [process.wait(LIMIT_SECONDS) for process in processes.values()]
    if any(ends):
        raise SystemExit((folder / "log").read_text()[-3000:])
    sys.path.insert(0, str(EXAMPLE))
    os.environ |= {"WORKER": "0", "GPU_SPOT_CHECKPOINTS": str(folder / "worker-0")}
    from train import open_study

    trials = open_study().trials
    return {
        "codes": codes,
        "unused": len(signals),
        "states": sorted({trial.state.name for trial in trials}),
        "trials": len(trials),
        "steps": [sorted(trial.intermediate_values) for trial in trials if trial.state.name == "COMPLETE"],
        "done": len(list(folder.glob("done-*"))),
    }


def main(folder: str, kills: str, terms: str) -> None:
    signals = [signal.SIGKILL] * int(kills) + [signal.SIGTERM] * int(terms)
    random.Random(0).shuffle(signals)
    json.dump(run(Path(folder, "study"), [*map(int, signals)]), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
