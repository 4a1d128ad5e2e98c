"""Invalid parameters affect only their own group."""

from __future__ import annotations

import math

import pytest

from lambdas.aws.settings import ParameterError, parse
from lambdas.core.capacity.policies.by_deadline import ByDeadline
from tests.fakes.aws import ROOT, FakeAws, config
from tests.lambdas.single_group import controller


@pytest.mark.parametrize(
    ("leaf", "text", "message"),
    [
        ("config", "{", "parameter broken/config: the value is not JSON: "),
        ("config", "{}", "parameter broken/config: kind is missing"),
        ("config", config(policy={"name": "magic"}), "policy 'magic' is unknown; use "),
        ("config", config(max="many"), "parameter broken/config: max must be of type int, not 'many'"),
        ("config", config(max=-1), "parameter broken/config: max must be 0 or more, not -1"),
        ("config", config(max=math.inf), "parameter broken/config: max must be of type int, not inf"),
        ("config", config(primary=None), "parameter broken/config: primary must be of type str, not None"),
        (
            "config",
            config(policy={"name": ["magic"]}),
            "parameter broken/config: policy.name must be of type str, not ['magic']",
        ),
        ("config", "[" * 100_000, "parameter broken/config: the value is not JSON: "),
        ("config", '{"max":' + "9" * 5_000 + "}", "parameter broken/config: the value is not JSON: "),
        ("target", "four", "parameter broken/target must be a whole number from 0 to 8, not 'four'"),
        ("target", "100000", "parameter broken/target must be a whole number from 0 to 8, not '100000'"),
        ("target", "9" * 5_000, "must be a whole number from 0 to 8"),
        (
            "control",
            '{"mode": "off"}',
            "control: mode must be automatic, manual, dry-run or paused, not 'off'",
        ),
        ("control", '{"mode": "manual"}', "control: onDemand must be 0 or more with mode manual, not None"),
        (
            "control",
            '{"mode": "manual", "onDemand": true}',
            "control: onDemand must be of type int, not True",
        ),
        (
            "control",
            '{"mode": ["paused"]}',
            "control: mode must be automatic, manual, dry-run or paused, not ['paused']",
        ),
        (
            "control",
            '{"Mode": "paused"}',
            "control: Mode is not a known key; the known keys are: budget, mode, onDemand",
        ),
        *(
            ("control", f'{{"mode": "automatic", "budget": {text}}}', f"not {shown}")
            for text, shown in (('"many"', "'many'"), ("-1", "-1"), ("true", "True"), ("0", "0"))
        ),
        ("control", "[" * 100_000, "parameter broken/control: the value is not JSON: "),
    ],
)
def test_a_broken_group_is_reported_and_does_not_affect_the_others(
    aws: FakeAws, leaf: str, text: str, message: str
) -> None:
    aws.set("broken", **{"config": config(), "target": "1", leaf: text})
    broken, fine = controller(aws).run()
    assert message in str(broken.error)
    assert len(str(broken.error)) < 250
    assert fine.decision is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "the value is not JSON: ") for text in ("", "{", "[" * 100_000)),
        ("[]", "the value must be an object, not []"),
        ('{"i-1": 5}', "i-1 must be a list of 2, not 5"),
        ('{"i-1": [1e999, "xid"]}', "i-1 must be of type int, not inf"),
    ],
)
def test_malformed_replacement_requests_are_reported_and_the_group_is_reconciled(
    aws: FakeAws, text: str, message: str
) -> None:
    aws.set(replacements=text)
    [outcome] = controller(aws).run()
    assert outcome.error is None
    [error] = outcome.read_errors
    assert error.startswith(f"parameter inference/replacements: {message}")
    assert len(error) < 150


def test_a_parameter_directly_below_the_root_affects_no_group(aws: FakeAws) -> None:
    aws.parameters[f"{ROOT}/unexpected"] = "1"
    unexpected, fine = controller(aws).run()
    assert str(unexpected.error) == "parameter unexpected/config is missing"
    assert fine.decision is not None


@pytest.mark.parametrize(("run", "finished", "target"), [("b", "b", 0), ("b", "a", 1), ("", "", 1)])
def test_a_jobs_target_is_0_after_its_run_has_finished(run: str, finished: str, target: int) -> None:
    leaves = {"config": config(run=run), "target": "1", "finished": finished}
    assert parse("resnet", leaves).group.target == target


def test_the_reserved_capacity_is_limited_to_the_target() -> None:
    for target, reserved in (("4", 3), ("2", 2), ("0", 0)):
        assert parse("g", {"config": config(reserved=3), "target": target}).group.reserved == reserved


@pytest.mark.parametrize(
    ("group", "prepared", "target"),
    [
        ("resnet", "none", 0),  # no GPU is paid while there is nothing to train on
        ("resnet", "imagenet@1", 0),  # an older version is another dataset
        ("resnet", "imagenet@2", 1),
        ("imagenet-data", "imagenet@1", 1),
        ("imagenet-data", "imagenet@2", 0),  # prepared: it is not prepared again, whatever its run is called
    ],
)
def test_a_group_waits_for_the_dataset_that_another_prepares(group: str, prepared: str, target: int) -> None:
    leaves = {"config": config(dataset="imagenet@2", preparedBy="imagenet-data"), "target": "1"}
    stack = {"imagenet-data": {"prepared": prepared}, "resnet": {}}
    assert parse(group, leaves, stack).group.target == target


def test_a_group_waits_if_no_group_prepares(aws: FakeAws) -> None:
    aws.set("resnet", config=config(dataset="imagenet@2", preparedBy="imagenet-data"), target="1")
    found = {outcome.group: outcome for outcome in controller(aws).run()}
    assert found["resnet"].decision is not None
    assert found["resnet"].error is None


def test_a_group_with_a_deadline_has_its_policy_whatever_else_it_names() -> None:
    leaves = {"config": config(deadline=1_803_920_400.0, run="r1"), "target": "1"}
    due = parse("resnet", leaves)
    assert due.policy == ByDeadline()
    assert (due.group.config.deadline, due.group.config.run) == (1_803_920_400.0, "r1")
    free = parse("resnet", {**leaves, "config": config()})
    assert (free.policy.name, free.group.config.deadline) == ("ready-handover", 0.0)


@pytest.mark.parametrize("moment", [-1, "soon", None, float("nan")])
def test_an_invalid_deadline_is_rejected(moment: object) -> None:
    with pytest.raises(ParameterError, match="parameter resnet/config: "):
        parse("resnet", {"config": config(deadline=moment), "target": "1"})
