"""Dataset preparation is checked as every group: type, quotas, image, command."""

from __future__ import annotations

from gpu_spot.preflight.checks import images, offerings
from gpu_spot.preflight.checks.account import quotas
from gpu_spot.preflight.stack import Stack
from pulumi_on_moto import AwsClients
from tests.infra import training
from tests.preflight.test_account_checks import ON_DEMAND, SPOT, stub_quotas
from tests.preflight.test_stack_checks import TEMPLATE, image
from tests.preflight.worlds import results_of, stack, statuses

STANDARD_SPOT, STANDARD = "L-34B43A08", "L-1216C47A"


def preparing(**changes: object) -> Stack:
    prepare = {
        "name": "imagenet",
        "version": "1",
        "command": ["python3", "p.py"],
        "instanceType": "m5.xlarge",
    }
    capacity = {**training.job()["capacity"], "ami": "/own/image"}
    job = training.job(capacity=capacity, prepare=prepare | changes)
    return stack(services=[], training=[job], declared=[TEMPLATE])


def test_its_vcpus_count_against_the_quotas_of_standard_types(clients: AwsClients) -> None:
    stub_quotas(clients, {SPOT: 1000, ON_DEMAND: 1000, STANDARD_SPOT: 3, STANDARD: 8})
    found = statuses(results_of(quotas, preparing(), clients))
    # An m5.xlarge has 4 vCPUs, and two of them may be up for a moment.
    assert (found[STANDARD_SPOT], found[STANDARD]) == ("failure", "ok")


def test_its_type_must_be_sold_there(clients: AwsClients) -> None:
    assert statuses(results_of(offerings, preparing(), clients))["imagenet-data"] == "ok"
    unknown = statuses(results_of(offerings, preparing(instanceType="m99i.large"), clients))
    assert unknown["imagenet-data"] == "failure"


def test_its_image_and_command_are_checked(clients: AwsClients) -> None:
    image(clients)
    found = results_of(images, preparing(command=["python", "p.py"]), clients)
    assert {one.subject: one.status for one in found if one.subject.startswith("imagenet")} == {
        "imagenet-data: /own/image": "failure"
    }
    assert any("no python" in one.finding for one in found if one.subject.startswith("imagenet"))
