from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from lambdas.core import registry_item
from lambdas.core.registry_item import Worker, WorkerState

TIMES = st.floats(0, 4e9) | st.integers(0, 4_000_000_000)
NAMES = st.text(min_size=1)


@given(
    st.builds(
        Worker,
        group=NAMES,
        instance=NAMES,
        slot=st.integers(0, 1024),
        since=TIMES,
        heartbeat=TIMES,
        state=st.sampled_from(get_args(WorkerState)),
        deadline=st.none() | TIMES,
    )
)
def test_what_is_written_is_read_again(worker: Worker) -> None:
    assert registry_item.parse(registry_item.dump(worker)) == worker


def test_a_worker_that_says_nothing_of_its_state_is_ready() -> None:
    item = registry_item.dump(Worker("serve", "i-1", 0, 1.0, 2.0, "waiting"))
    del item["state"]
    assert registry_item.parse(item).state == "ready"
