"""A worker of an Optuna study whose journal all workers share: ``WORKER=1 python train.py``.

A lost worker goes on with its own trial, at the step of its newest checkpoint.
"""

from __future__ import annotations

import json
import os
import time
from functools import partial
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import Trial, TrialState

from spot_training import Checkpointer, Notice

TRIALS, STEPS = int(os.environ.get("TRIALS", "40")), 8
WORKER = os.environ["WORKER"]  # of the matrix
CHECKPOINTS = Path(os.environ.get("GPU_SPOT_CHECKPOINTS", f"checkpoints/worker-{WORKER}")).resolve()
JOURNAL = str(CHECKPOINTS.parent / ".study.journal")  # beside the folders of all workers, on EFS


def open_study() -> optuna.Study:
    """Return the study that all workers share."""
    lock = JournalFileOpenLock(JOURNAL)  # for NFS; a lock that a lost worker left ends after 30 s
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(JOURNAL, lock_obj=lock)),
        study_name="study",
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(constant_liar=True),  # others' running trials count
        pruner=optuna.pruners.SuccessiveHalvingPruner(),
    )


def next_trial(study: optuna.Study) -> Trial | None:
    """Return this worker's interrupted trial, else a new one; None at the study's end."""
    trials = study.get_trials(deepcopy=False)
    for one in trials:
        if one.state == TrialState.RUNNING and one.user_attrs.get("worker") == WORKER:
            return Trial(study, one._trial_id)
    if sum(one.state != TrialState.FAIL for one in trials) >= TRIALS:
        return None
    trial = study.ask()
    trial.set_user_attr("worker", WORKER)
    return trial


def write(loss: float, folder: Path) -> None:
    """Write a trial's state into a checkpoint."""
    (folder / "state").write_text(json.dumps(loss))


def train(trial: Trial, notice: Notice) -> tuple[float, TrialState] | None:
    """Train one trial; return its loss and state, None at a notice. Replace the arithmetic by your model."""
    rate = trial.suggest_float("rate", 0, 1)
    checkpointer = Checkpointer(CHECKPOINTS / f"trial-{trial.number}")
    saved = checkpointer.restore()
    loss = json.loads((saved.part() / "state").read_text()) if saved else 1.0
    for step in range(saved.step if saved else 0, STEPS):
        time.sleep(0.25)
        loss = 0.8 * loss + 0.2 * (rate - 0.3) ** 2
        trial.report(loss, step)
        checkpointer.save(step + 1, partial(write, loss))
        if trial.should_prune():
            return loss, TrialState.PRUNED
        if notice.received:
            return None
    return loss, TrialState.COMPLETE


def main() -> None:
    """Run trials until the study has enough of them."""
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    study, notice = open_study(), Notice()
    while trial := next_trial(study):
        ended = train(trial, notice)
        if ended is None:
            return  # it is started again on another instance
        study.tell(trial, *(ended if ended[1] == TrialState.COMPLETE else (None, ended[1])))
    if path := os.environ.get("GPU_SPOT_DONE"):
        Path(path).touch()


if __name__ == "__main__":
    main()
