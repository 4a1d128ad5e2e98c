"""CPUs by weight: nobody more than it wants, nothing idle while somebody wants it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rehearsal.machines.tenants.appetite import CpuDemand, divide

DEMANDS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(CpuDemand, st.integers(1, 10_000), st.floats(0, 64)),
)


@given(st.integers(1, 96), DEMANDS)
def test_it_conserves_work_and_follows_the_weights(cpus: int, demands: dict[str, CpuDemand]) -> None:
    got = divide(cpus, demands)
    assert all(0 <= got[name] <= one.wants + 1e-6 for name, one in demands.items())
    assert abs(sum(got.values()) - min(cpus, sum(one.wants for one in demands.values()))) < 1e-6
    # Who lacks something has as much for its weight as anybody.
    hungry = [got[name] / one.weight for name, one in demands.items() if got[name] < one.wants - 1e-6]
    most = max((got[name] / one.weight for name, one in demands.items()), default=0.0)
    assert all(abs(each - most) < 1e-6 for each in hungry)


def test_what_was_lent_comes_back_when_it_is_wanted() -> None:
    greedy, other = CpuDemand(480, 48.0), CpuDemand(160, 0.0)
    assert divide(16, {"greedy": greedy, "other": other}) == {"greedy": 16.0, "other": 0.0}
    assert divide(16, {"greedy": greedy, "other": CpuDemand(160, 4.0)}) == {"greedy": 12.0, "other": 4.0}
