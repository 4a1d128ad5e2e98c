"""Kill a real training again and again, and compare what comes out with an uninterrupted one.

Runs in the environment of the framework: ``python -m frameworks.kills train_torch --terms 5 --kills 5
--folder F``; prints JSON. Importing PyTorch takes longer than these trainings, so each start is a fork of
this process, which has imported it and done nothing else; from there on it is a process like any other.
"""

from __future__ import annotations

import argparse
import hashlib
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
from pathlib import Path
from typing import Any

from spot_training.checkpointer import Checkpointer
from spot_training.storage.files import Files
from spot_training.storage.manifest import FILE

FORK = multiprocessing.get_context("fork")
KILLED_AFTER = 30.0  # by torchrun, when another rank has ended
AT_MOST = 12  # steps from a start to a kill
A_STEP = 0.05  # seconds, with a save beside it


class Job:
    """One training in a folder, of some ranks; started as often as needed."""

    def __init__(self, module: Any, folder: Path, ranks: int = 1, **options: Any) -> None:
        self.module, self.folder, self.ranks, self.options = module, folder, ranks, options
        self.running: list[Any] = []
        folder.mkdir(parents=True, exist_ok=True)

    def start(self, die_at: int = 0) -> None:
        """Start all ranks; ``die_at`` lets rank 0 be killed in its fifth save, at that touch of the disk."""
        for up in self.folder.glob("up-*"):
            up.unlink()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.running = [FORK.Process(target=self._main, args=(r, port, die_at)) for r in range(self.ranks)]
        for one in self.running:
            one.start()

    def _main(self, rank: int, port: int, die_at: int) -> None:
        with (self.folder / f"log-{rank}").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        if self.ranks > 1:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(self.ranks), LOCAL_RANK=str(rank))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        if die_at and rank == 0:
            self._die_at(die_at)
        self.module.main(self.folder, **self.options)

    def _die_at(self, number: int) -> None:
        """Be killed at a touch of the fifth save, which is the first that removes an old checkpoint, too."""
        owner, name = self.module.WRITES
        touches, saves, write, checkpoint_save = [0], [0], getattr(owner, name), Checkpointer.save

        def whole(own: Checkpointer, step: int, *rest: Any, **more: Any) -> None:
            saves[0] += 1
            checkpoint_save(own, step, *rest, **more)

        def die() -> bool:
            touches[0] += saves[0] == 5
            return saves[0] == 5 and touches[0] == number

        def touch(files: Files, what: str, path: Path) -> None:
            if die():
                os.kill(os.getpid(), signal.SIGKILL)

        def half(*given: Any, **more: Any) -> None:
            write(*given, **more)
            if die():
                paths = [one if isinstance(one, Path) else getattr(one, "name", None) for one in given]
                [path] = [Path(one) for one in paths if one is not None]
                os.truncate(path, path.stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)

        Checkpointer.save, Files.touch = whole, touch  # type: ignore[method-assign]
        setattr(owner, name, half)

    def wait_steps(self, count: int) -> None:
        """Wait until rank 0 has taken so many steps in all, or one has ended."""
        end = time.monotonic() + 300
        while len(self.steps()) < count or not self.all_up():
            if not all(one.is_alive() for one in self.running):
                return
            if time.monotonic() > end:
                raise SystemExit(f"{self.folder}: {count} steps are not reached in 300 s: {self.log()}")
            time.sleep(0.002)

    def all_up(self) -> bool:
        """Tell whether all ranks can hear a notice."""
        return all((self.folder / f"up-{rank}").exists() for rank in range(self.ranks))

    def signal(self, number: int, ranks: list[int]) -> None:
        """Send a signal to some ranks."""
        for rank in ranks:
            os.kill(self.running[rank].pid, number)

    def end(self) -> list[int]:
        """Wait for all; when one has failed, do to the others what torchrun does. Return the exit codes."""
        while all(one.is_alive() for one in self.running):
            self.running[0].join(0.005)
        if any(one.exitcode for one in self.running):
            for one in self.running:
                one.terminate()
        for one in self.running:
            one.join(KILLED_AFTER if any(other.exitcode for other in self.running) else 300)
            if one.is_alive():
                one.kill()
                one.join()
        return [one.exitcode for one in self.running]

    def log(self, rank: int = 0) -> str:
        """Return the end of what a rank said."""
        return (self.folder / f"log-{rank}").read_text()[-2000:]

    def failure(self, codes: list[int]) -> SystemExit:
        """Return the error of a start that ended with these codes: what each rank that failed said."""
        said = "\n".join(self.log(rank) for rank, code in enumerate(codes) if code)
        return SystemExit(f"{self.folder}: ended with {codes}: {said}")

    def weights(self) -> str:
        """Return the final weights' digest; empty where there are none."""
        final = self.folder / "final.pt"
        return hashlib.sha256(final.read_bytes()).hexdigest() if final.exists() else ""

    def history(self) -> list[dict[int, tuple[int, list[int]]]]:
        """Return for each rank the epoch and samples of each step that the weights descend from.

        A later line for a step replaces the earlier one: that step was lost and taken again.
        """
        found = []
        for rank in range(self.ranks):
            path = self.folder / f"history-{rank}"
            lines = path.read_text().split("\n")[:-1] if path.exists() else []
            found.append({step: (epoch, ids) for step, epoch, ids in map(_entry, lines)})
        return found

    def steps(self) -> list[int]:
        """Return the steps that rank 0 has taken, in order, repeated ones too."""
        path = self.folder / "history-0"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [_entry(line)[0] for line in lines]

    def faults(self) -> list[str]:
        """Return what is wrong with the history: steps missing, samples seen twice or never."""
        wrong = []
        for epoch in range(self.module.EPOCHS):
            seen = Counter(i for own in self.history() for e, ids in own.values() if e == epoch for i in ids)
            twice = [one for one, count in seen.items() if count > 1]
            if twice or len(seen) != self.module.LENGTH:
                wrong.append(f"epoch {epoch}: {len(seen)} of {self.module.LENGTH} samples, twice: {twice}")
        for own in self.history():
            if sorted(own) != list(range(len(own))):
                wrong.append("steps are missing")
        return wrong

    def newest(self) -> float:
        """Return when the newest checkpoint was committed; 0 where there is none."""
        return max((p.stat().st_mtime for p in self.folder.glob(f"checkpoints/step-*/{FILE}")), default=0.0)


def _entry(line: str) -> Any:
    return json.loads(line[line.rfind("[", 0, line.rfind("[")) :])  # a kill may have cut the line before it


def uninterrupted(module: Any, folder: Path, ranks: int, options: dict[str, Any]) -> str:
    job = Job(module, folder, ranks, **options)
    job.start()
    codes = job.end()
    if any(codes) or job.faults():
        raise SystemExit(f"uninterrupted: {codes} {job.faults()} {job.log()}")
    return job.weights()


def interrupted(
    module: Any, folder: Path, *, terms: int, kills: int, ranks: int, seed: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Interrupt trainings until there were so many of both; each is then let to its end and compared."""
    wanted = uninterrupted(module, folder / "reference", ranks, options)
    steps = set(Job(module, folder / "reference", ranks).steps())
    chance = random.Random(seed)
    todo = [signal.SIGTERM] * terms + [signal.SIGKILL] * kills
    chance.shuffle(todo)
    counts = Counter(
        dict.fromkeys(("sigterm", "sigkill", "mismatches", "unreadable", "trainings", "starts"), 0)
    )
    lost_steps, lost_seconds, faults = 0, 0.0, list[str]()
    while todo:
        job = Job(module, folder / f"run-{counts['trainings']}", ranks, **options)
        counts["trainings"] += 1
        was_signalled = False
        while not job.weights():
            before = job.steps()
            job.start()
            counts["starts"] += 1
            working = None
            if todo:
                if count := chance.randrange(AT_MOST):
                    job.wait_steps(len(before) + 1)
                    working = (
                        time.time()
                    )  # what is before it, loading and compiling, is not work that is lost
                job.wait_steps(len(before) + count)
                time.sleep(chance.uniform(0, A_STEP))
            hit = todo and all(one.is_alive() for one in job.running)
            number = todo.pop() if hit else None
            if number == signal.SIGTERM:
                job.signal(number, list(range(ranks)))
                counts["sigterm"] += 1
            elif number == signal.SIGKILL:
                job.signal(number, [chance.randrange(ranks)])  # the others are torchrun's matter
                counts["sigkill"] += 1
                if working:
                    lost_seconds = max(lost_seconds, time.time() - max(job.newest(), working))
            codes = job.end()
            # After the last step all is saved, and SIGTERM ends a process: the next start repeats the export.
            allowed = {0, -signal.SIGTERM} if number and steps.issubset(job.steps()) else {0}
            if number != signal.SIGKILL and not allowed.issuperset(codes):
                raise job.failure(codes)
            new = job.steps()[len(before) :]
            if was_signalled and new:
                lost_steps = max(lost_steps, before[-1] + 1 - new[0])
            was_signalled = number == signal.SIGTERM and bool(new)
        counts["mismatches"] += job.weights() != wanted
        counts["unreadable"] += (job.folder / "log-0").read_text().count("is skipped")
        faults += job.faults()
    return {
        "kills": counts["sigterm"] + counts["sigkill"],
        **counts,
        "lost_steps_with_notice": lost_steps,
        "lost_seconds_without_notice": round(lost_seconds, 2),
        "faults": faults,
    }


def at_each_write(
    module: Any, folder: Path, *, ranks: int, stride: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Kill a training at the first touch of the disk by a save, then at the next, until none is hit.

    With a ``stride`` of more than 1 only at every so many touches.
    """
    wanted = uninterrupted(module, folder / "reference", ranks, options)
    counts = Counter(dict.fromkeys(("writes", "mismatches", "unreadable"), 0))
    faults = list[str]()
    while True:
        job = Job(module, folder / f"write-{counts['writes'] + 1}", ranks, **options)
        job.start(die_at=counts["writes"] * stride + 1)
        if not any(job.end()):
            break
        counts["writes"] += 1
        job.start()
        if any(codes := job.end()):
            raise job.failure(codes)
        counts["mismatches"] += job.weights() != wanted
        counts["unreadable"] += (job.folder / "log-0").read_text().count("is skipped")
        faults += job.faults()
    return {"kills": counts["writes"], **counts, "faults": faults}


def fewer_ranks(module: Any, folder: Path, *, options: dict[str, Any]) -> dict[str, Any]:
    """Let two ranks begin, be told in the second epoch, and one finish."""
    job = Job(module, folder, 2, **options)
    job.start()
    job.wait_steps(12)
    job.signal(signal.SIGTERM, [0, 1])
    codes = job.end()
    started_at, said = job.steps(), job.log()
    job.ranks = 1
    job.start()
    codes += job.end()
    lost = started_at[-1] + 1 - job.steps()[len(started_at)] if codes == [0, 0, 0] else None
    job.ranks = 2
    return {
        "codes": codes,
        "lost_steps_with_notice": lost,
        "faults": job.faults(),
        "begun": said,
        "log": job.log(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--terms", type=int, default=0)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1, help="of --each-write: every so many touches")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each-write", action="store_true", help="of the fifth save")
    parser.add_argument("--fewer-ranks", action="store_true", help="two begin, one finishes")
    parser.add_argument("--option", action="append", default=[], help="NAME=JSON, for the training")
    given = parser.parse_args()
    module = importlib.import_module(f"frameworks.{given.module}")
    options = {name: json.loads(value) for name, value in (one.split("=") for one in given.option)}
    if given.fewer_ranks:
        result = fewer_ranks(module, given.folder, options=options)
    elif given.each_write:
        result = at_each_write(module, given.folder, ranks=given.ranks, stride=given.stride, options=options)
    else:
        result = interrupted(
            module,
            given.folder,
            terms=given.terms,
            kills=given.kills,
            ranks=given.ranks,
            seed=given.seed,
            options=options,
        )
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
