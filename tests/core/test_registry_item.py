from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.registry import item as registry_item
from contracts.registry.item import Progress, Worker, WorkerState

TIMES = st.floats(0, 4e9) | st.integers(0, 4_000_000_000)
NAMES = st.text(min_size=1)
PROGRESS = st.builds(
    lambda done, left, rate, more, **times: Progress(
        done, done + left, rate=rate, best_rate=rate + more, **times
    ),
    done=st.integers(0, 2**52),
    left=st.integers(1, 2**52),
    rate=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
    reported_at=TIMES,
    first_reported_at=TIMES,
)


@given(
    st.builds(
        Worker,
        partition=NAMES,
        instance=NAMES,
        slot=st.integers(0, 1024),
        since=TIMES,
        heartbeat=TIMES,
        state=st.sampled_from(get_args(WorkerState)),
        deadline=st.none() | TIMES,
        progress=st.none() | PROGRESS,
    )
)
def test_what_is_written_is_read_again(worker: Worker) -> None:
    assert registry_item.parse(registry_item.dump(worker)) == worker


def test_a_worker_that_says_nothing_of_its_state_is_ready() -> None:
    item = registry_item.dump(Worker("serve", "i-1", 0, 1.0, 2.0, "waiting"))
    del item["state"]
    assert registry_item.parse(item).state == "ready"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", "101"),  # of 100
        ("step", "-1"),
        ("step", "many"),
        ("steps", "0"),
        ("steps", str(2**53 + 1)),
        ("at", "nan"),
        ("rate", "inf"),
        ("rate", "-1"),
        ("rate", "3"),  # slower than the faster half, which is 2
    ],
)
def test_impossible_progress_counts_as_missing_and_the_worker_remains(field: str, value: str) -> None:
    progress = Progress(7, 100, 50.0, 10.0, 1.0, 2.0)
    item = registry_item.dump(Worker("train", "i-1", 0, 1.0, 2.0, "ready", progress=progress))
    assert registry_item.parse(item).progress == progress
    item["progress"]["M"][field]["N"] = value
    worker = registry_item.parse(item)
    assert (worker.instance, worker.progress) == ("i-1", None)
