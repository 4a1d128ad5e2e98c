"""A Ray Tune study on one node that survives the loss of its instance: ``python train.py``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import ray
from on_spot import STORAGE, Report, save_at_notice, whole_files
from ray import tune

os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1")  # the study's state each second, not each ten
STEPS = 8


def train(config: dict[str, float]) -> None:
    """Train one trial; replace the arithmetic by your model."""
    state = {"step": 0, "loss": 1.0}
    if checkpoint := tune.get_checkpoint():
        with checkpoint.as_directory() as folder:
            state = json.loads(Path(folder, "state.json").read_text())
    while state["step"] < STEPS:
        time.sleep(0.25)
        loss = 0.8 * state["loss"] + 0.2 * (config["rate"] - 0.3) ** 2
        state = {"step": state["step"] + 1, "loss": loss}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "state.json").write_text(json.dumps(state))
            tune.report(state, checkpoint=tune.Checkpoint.from_directory(folder))


def tuner() -> tune.Tuner:
    """Return the study as it was saved, else a new one."""
    study, files = STORAGE / "study", whole_files()
    if any(study.glob("experiment_state-*.json")):  # can_restore() is true before there is a state
        return tune.Tuner.restore(str(study), train, resume_errored=True, storage_filesystem=files)
    search = tune.search.BasicVariantGenerator(random_state=1)
    return tune.Tuner(
        train,
        param_space={"rate": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=16, search_alg=search),
        run_config=tune.RunConfig(
            name="study",  # without it each start is a new study
            storage_path=str(STORAGE),
            storage_filesystem=files,
            checkpoint_config=tune.CheckpointConfig(num_to_keep=3),
            failure_config=tune.FailureConfig(max_failures=2),
            callbacks=[Report()],
        ),
    )


def main() -> None:
    """Run the study, or the rest of it; write its best trial's parameters."""
    ray.init(include_dashboard=False)
    received = save_at_notice()
    results = tuner().fit()
    if received:
        return  # exit code 0 after SIGTERM: it continues elsewhere
    if results.errors:
        sys.exit(f"{len(results.errors)} trials failed")
    folder = Path(os.environ.get("GPU_SPOT_ARTIFACTS", "."))
    (folder / "best.json").write_text(json.dumps(results.get_best_result().config))
    Path(os.environ.get("GPU_SPOT_DONE", "done")).touch()


if __name__ == "__main__":
    main()
