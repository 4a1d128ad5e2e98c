"""A JAX training whose arrays Orbax writes, for the kill tests: the recipe of spot_training's README.

See ``train_keras.py``.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from spot_training import Interval, Spot

LENGTH, EPOCHS, BATCH = 62, 4, 4
STEPS = -(-LENGTH // BATCH)
WRITES = (ocp.StandardCheckpointer, "save")
"""What writes the big files of a save."""


def new_state() -> dict[str, Any]:
    """Return weights, momentum, the mean loss of the epoch and the key of random numbers."""
    key, *keys = jax.random.split(jax.random.key(7), 3)
    weights = {"in": jax.random.normal(keys[0], (8, 32)) / 3, "out": jax.random.normal(keys[1], (32, 1)) / 6}
    state = {"weights": weights, "momentum": jax.tree.map(jnp.zeros_like, weights)}
    return {**state, "loss": jnp.zeros(()), "key": jax.random.key_data(key)}


@jax.jit
def train_step(state: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    """Take a step with dropout."""
    key, chance = jax.random.split(jax.random.wrap_key_data(state["key"]))

    def loss_of(weights: Any) -> Any:
        hidden = jax.nn.relu(x @ weights["in"])
        hidden = hidden * jax.random.bernoulli(chance, 0.8, hidden.shape) / 0.8
        return jnp.mean((hidden @ weights["out"] - y[:, None]) ** 2)

    loss, slopes = jax.value_and_grad(loss_of)(state["weights"])
    momentum = jax.tree.map(lambda before, slope: 0.9 * before + slope, state["momentum"], slopes)
    weights = jax.tree.map(lambda weight, change: weight - 0.01 * change, state["weights"], momentum)
    key = jax.random.key_data(key)
    return {"weights": weights, "momentum": momentum, "loss": state["loss"] + loss, "key": key}


def main(place: Path, *, pause: float = 0.01, every: float = 0.03) -> None:
    """Train; ``pause`` seconds a step make room for a kill, ``every`` is the interval of saves at most."""
    jax.config.update("jax_compilation_cache_dir", str(place.parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    numbers = np.arange(LENGTH, dtype="float32")
    x, y = np.sin(numbers[:, None] * np.arange(1.0, 9.0)).astype("float32"), np.cos(numbers)
    state = new_state()
    orbax = ocp.StandardCheckpointer()
    spot = Spot(place / "checkpoints", steps=EPOCHS * STEPS, interval=Interval(max_seconds=every))
    saved = spot.restore()
    if saved:
        state = orbax.restore(saved.part().resolve() / "state", state)

    def write(folder: Path) -> None:
        orbax.save(folder.resolve() / "state", state)
        orbax.wait_until_finished()  # it writes in the background; this checkpoint is committed next

    history = (place / "history-0").open("a")
    (place / "up-0").touch()
    for step in range(saved.step if saved else 0, EPOCHS * STEPS):
        epoch, batch = divmod(step, STEPS)
        order = np.random.RandomState(epoch).permutation(LENGTH)[batch * BATCH : (batch + 1) * BATCH]
        state = train_step(state, x[order], y[order])
        time.sleep(pause)
        print(json.dumps([step, epoch, order.tolist()]), file=history, flush=True)
        spot.after(step + 1, write)
        if spot.should_stop():
            return
    spot.finish()
    whole = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state))
    (place / ".final.pt").write_bytes(whole)
    (place / ".final.pt").rename(place / "final.pt")
