"""A group of a stack file as a market question, its forecast, and the most that a stack may cost."""

from __future__ import annotations

import pytest

from gpu_spot.forecast import outline
from gpu_spot.forecast.ceiling import Ceiling, ceiling
from gpu_spot.forecast.groups import entries, forecast, pools, question
from gpu_spot.forecast.prices import Prices
from gpu_spot.forecast.ranges import Range, SlotForecast
from infra.catalogue.on_demand_prices import price
from lambdas.core.model import Pool
from tests.forecast.conftest import ZONES, job, pods, service, settings_of

LISTED = Prices("us-west-2")
G6 = price("g6.xlarge", "us-west-2") or 0.0


def test_cost_is_the_sum_of_spot_and_on_demand(week: SlotForecast) -> None:
    [entry] = entries(settings_of([service(onDemandBase=2, rootVolumeGiB=100)]))
    found = forecast(entry, ZONES, LISTED, week)
    on_demand = 730 * G6
    assert found.cost is not None
    assert found.cost.middle == pytest.approx((2 + 6 * 0.4) * on_demand)
    assert found.cost.high == pytest.approx((2 + 6 * 0.6) * on_demand)
    assert found.on_demand == pytest.approx(8 * on_demand)
    assert found.volumes == pytest.approx(8 * 100 * 0.08)  # at EBS's price, whatever the instances cost
    # 10.08 minutes of a week's 10,080, for six of eight slots
    assert found.availability.middle == pytest.approx(1 - 0.001 * 6 / 8)
    assert found.availability.low < found.availability.middle < found.availability.high
    assert found.interruptions.middle == pytest.approx(6 * 3.0)
    assert found.interruptions.high == pytest.approx(6 * 9.0)
    assert found.lost_minutes.middle == pytest.approx(6 * 10.08 / 7)


def test_headroom_has_its_price(week: SlotForecast) -> None:
    queue = {"kind": "rabbitmq", "existing": {"secret": "queues/ocr"}}
    entry_of = {**service(), "command": ["serve"], "queue": queue, "scaling": {"headroom": 1}}
    [entry] = entries(settings_of([entry_of]))
    price_of_four = f"${4 * 730 * G6:,.0f} a month On-Demand, less with Spot"
    notes = forecast(entry, ZONES, LISTED, week).notes
    assert f"4.0 of the target are for headroom 1: {price_of_four}" in notes


def test_a_job_repeats_unsaved_work(week: SlotForecast) -> None:
    [entry] = entries(settings_of([], [job(volumeGiB=300, throughputMib=250)]))
    found = forecast(entry, ZONES, LISTED, week)
    assert found.lost_minutes.middle == pytest.approx(10.08 / 7 + 0.5 * 5)
    assert found.volumes == pytest.approx((125 + 300) * 0.08 + (250 - 125) * 0.04)
    assert "all month" in found.notes[0]
    asked = question(entry, ZONES, LISTED, None)
    assert asked is not None
    assert (asked.job, asked.slots, dict(asked.policy_parameters)) == (True, 1, {"shortageCost": 2.0})


def test_a_job_of_some_hours_costs_those(week: SlotForecast) -> None:
    [all_month] = entries(settings_of([], [job(volumeGiB=300)]))
    [short] = entries(settings_of([], [job(volumeGiB=300, expectedHours=73)]))
    whole, found = (forecast(entry, ZONES, LISTED, week) for entry in (all_month, short))
    assert found.cost is not None
    assert whole.cost is not None
    assert found.cost.middle == pytest.approx(whole.cost.middle / 10)
    assert found.volumes == pytest.approx((12.5 + 300) * 0.08)
    assert found.notes[0] == "one run of 73 hours (expectedHours)"


def test_groups_that_differ_in_size_alone_ask_the_same() -> None:
    big = settings_of(
        [service("one", target=40), service("two", target=50), service("three", spotPercentage=50)]
    )
    one, two, three = (question(entry, ZONES, LISTED, None) for entry in entries(big))
    assert one == two == three


def test_a_group_without_spot_has_no_question_and_on_demand_cost() -> None:
    [entry] = entries(settings_of([service(onDemandBase=8)]))
    assert question(entry, ZONES, LISTED, None) is None
    found = forecast(entry, ZONES, LISTED, None)
    assert found.cost == Range(*[pytest.approx(found.on_demand)] * 3)
    assert found.availability.low == 1.0


def test_a_target_of_zero_costs_nothing() -> None:
    [entry] = entries(settings_of([service(target=0)]))
    assert forecast(entry, ZONES, LISTED, None).cost == Range(0.0, 0.0, 0.0)


def test_a_pool_that_saves_nothing_is_named() -> None:
    [entry] = entries(settings_of([service()]))
    dear = Pool("g5.xlarge", "us-west-2b")
    prices = Prices("us-west-2", spot={dear: 1.1 * G6, Pool("g6.xlarge", "us-west-2a"): 0.5 * G6})
    found = forecast(entry, ZONES, prices, None)
    assert found.notes == (f"{dear} saves nothing: the Spot price is 1.10 of the On-Demand price",)
    shares = dict(pools(entry.capacity, ZONES, prices))
    assert shares[dear] == Range(*[pytest.approx(1.1)] * 3)
    assert shares[Pool("g6.xlarge", "us-west-2a")].middle == pytest.approx(0.5)
    assert list(shares)[-1] == dear


def test_an_unknown_price_makes_the_cost_unknown_with_a_note(week: SlotForecast) -> None:
    [entry] = entries(settings_of([service()]))
    found = forecast(entry, ZONES, Prices("ap-east-2"), week)
    assert found.cost is None
    assert found.on_demand is None
    assert found.notes == ("not priced: g6.xlarge, g5.xlarge in ap-east-2; make prices reads AWS's prices",)
    assert found.volumes == pytest.approx(8 * 125 * 0.08)  # at the price of us-east-1


def test_an_unpriced_type_of_a_priced_group_is_named(week: SlotForecast) -> None:
    [entry] = entries(settings_of([service(instanceTypes=["g6.xlarge", "g7.2xlarge"])]))
    found = forecast(entry, ZONES, LISTED, week)
    assert found.cost is not None
    assert "g7.2xlarge in us-west-2: not priced, forecast at the prices of the other types" in found.notes
    [first] = entries(settings_of([service(instanceTypes=["g7.2xlarge", "g6.xlarge"])]))
    assert forecast(first, ZONES, LISTED, week).cost is None  # On-Demand buys the first type


def test_a_group_of_gpus_has_a_root_volume_per_instance(week: SlotForecast) -> None:
    sizes = {"unit": "gpus", "instanceTypes": ["g6.12xlarge"], "target": 9, "max": 24}
    [entry] = entries(settings_of([service(**sizes, rootVolumeGiB=100)]))
    assert forecast(entry, ZONES, LISTED, week).volumes == pytest.approx(3 * 100 * 0.08)


def test_a_slot_is_a_gpu_where_the_group_counts_gpus() -> None:
    [entry] = entries(settings_of([service(unit="gpus", instanceTypes=["g6.12xlarge", "g6.xlarge"], max=20)]))
    assert LISTED.slot(entry.capacity) == pytest.approx((price("g6.12xlarge", "us-west-2") or 0) / 4)


def test_kubernetes_nodes_have_their_own_policy_and_the_same_prices(week: SlotForecast) -> None:
    there, here = entries(settings_of([pods(service("there")), service("here")]))[::-1]
    asked, on_instances = (question(entry, ZONES, LISTED, None) for entry in (there, here))
    assert asked is not None
    assert on_instances is not None
    assert (asked.policy, asked.policy_parameters) == ("ready-handover", ())
    assert (asked.warm, asked.drain_seconds) == (False, 110)
    assert (on_instances.policy, on_instances.warm) == ("expected-cost", False)
    assert asked.shares == on_instances.shares
    found, known = (forecast(entry, ZONES, LISTED, week) for entry in (there, here))
    # Each of eight root volumes has 125 MiB/s beyond gp3's own, at $0.04.
    assert (found.cost, found.volumes) == (known.cost, known.volumes + 8 * 125 * 0.04)
    public = forecast(here, ZONES, LISTED, week, has_addresses=True)
    assert public.volumes == pytest.approx(known.volumes + 8 * 730 * 0.005)
    assert (found.runs_on, known.runs_on) == ("kubernetes", "instances")
    assert "Karpenter" in found.notes[0]
    assert not known.notes


def test_a_job_of_several_nodes_pays_all_of_them(week: SlotForecast) -> None:
    [one], [four] = (entries(settings_of([], [pods(job(), nodes=nodes)])) for nodes in (1, 4))
    alone, together = (forecast(entry, ZONES, LISTED, week) for entry in (one, four))
    assert alone.cost is not None
    assert together.cost == alone.cost.times(4)
    assert together.volumes == pytest.approx(4 * alone.volumes)
    assert "its 4 nodes wait for each other" in together.notes[-1]
    [survivors] = entries(settings_of([], [pods(job(), nodes={"min": 2, "max": 4})]))
    assert "its 2 to 4 nodes wait below 2" in forecast(survivors, ZONES, LISTED, week).notes[-1]


def test_an_experiment_on_kubernetes_waits_longer_for_each_restart(week: SlotForecast) -> None:
    [experiment], [pod], [several], [instance] = (
        entries(settings_of([], [entry]))
        for entry in (pods(job(), matrix={"SEED": [1]}), pods(job()), pods(job(), nodes=2), job())
    )
    delayed, *others = (
        forecast(entry, ZONES, LISTED, week) for entry in (experiment, pod, several, instance)
    )
    # 10 + 20 + 40 + 80 + 160 + 320 s, then 600 s each: 90 interruptions in a month
    hours = (630 + 84 * 600) / 3600
    assert delayed.lost_minutes.middle - others[0].lost_minutes.middle == pytest.approx(hours * 60 / 30)
    assert f"{hours:.1f} hours of one of a month" in delayed.notes[-1]
    assert not [note for other in others for note in other.notes if "delays each restart" in note]


def test_fewer_types_or_zones_are_a_part_of_the_same_drawn_market() -> None:
    def drawn(zones: tuple[str, ...], *types: str) -> set[int]:
        [entry] = entries(settings_of([service(instanceTypes=list(types))]))
        asked = question(entry, zones, LISTED, None)
        assert asked is not None
        assert len(set(asked.drawn)) == len(asked.shares)
        return set(asked.drawn)

    whole = drawn(ZONES, "g6.xlarge", "g5.xlarge")
    assert drawn(ZONES, "g6.xlarge") < whole
    assert drawn(ZONES[:2], "g6.xlarge", "g5.xlarge") < whole
    assert len(drawn(tuple("abcdef"), "g6.xlarge", "g5.xlarge")) == 6


def usd(kind: str) -> float:
    found = price(kind, "us-west-2")
    assert found is not None
    return found


def test_it_is_the_sum_of_each_maximum_at_the_price_of_the_dearest_type() -> None:
    found = ceiling(settings_of([service(max=9), service("other", target=2)], [job()]))
    dearest = max(usd("g6.xlarge"), usd("g5.xlarge"))
    assert found == Ceiling(pytest.approx(9 * dearest + 4 * dearest + 2 * usd("g6.xlarge")))
    assert str(found) == f"at most ${found.usd:,.2f} an hour"


def test_gpus_are_slots_and_a_higher_bid_counts() -> None:
    types = {"instanceTypes": ["g6.12xlarge", "g6.48xlarge"], "unit": "gpus"}
    per_gpu = max(usd("g6.12xlarge") / 4, usd("g6.48xlarge") / 8)
    assert ceiling(settings_of([service(max=24, **types)])).usd == pytest.approx(24 * per_gpu)
    assert ceiling(settings_of([service(max=24, maxPrice=100, **types)])).usd == pytest.approx(24 * 100)


def test_nodes_on_kubernetes_count() -> None:
    one = ceiling(settings_of([], [pods(job())])).usd
    assert one == pytest.approx(2 * usd("g6.xlarge"))
    three = settings_of([], [pods(job(), nodes=3)])
    assert ceiling(three).usd == pytest.approx(3 * one)
    [row] = outline.rows(three)
    assert row.ceiling == f"${3 * one:,.2f}"


def test_an_unknown_price_is_named_and_counts_as_dearer_than_a_known_one() -> None:
    kind = "p5e.48xlarge"
    assert price(kind, "us-west-2") is None
    known = ceiling(settings_of([service()]))
    unknown = ceiling(settings_of([service(instanceTypes=["g6.xlarge", kind])]))
    assert unknown.assumed == (kind,)
    assert unknown.usd > known.usd
    assert str(unknown).endswith(f"an hour (assumed: no price of {kind})")
