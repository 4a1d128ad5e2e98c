"""Who prepares a dataset is looked up as every group is: its type, its quotas, its image, its command."""

from __future__ import annotations

from gpu_spot.preflight.checks import images, offerings
from gpu_spot.preflight.checks.account import quotas
from gpu_spot.preflight.stack import Stack
from pulumi_on_moto import AwsClients
from tests.infra import training
from tests.preflight.test_account_checks import ON_DEMAND, SPOT, vcpus
from tests.preflight.test_stack_checks import TEMPLATE, image
from tests.preflight.worlds import remarks, stack, statuses

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
    vcpus(clients, {SPOT: 1000, ON_DEMAND: 1000, STANDARD_SPOT: 3, STANDARD: 8})
    found = statuses(remarks(quotas, preparing(), clients))
    # An m5.xlarge has 4 vCPUs, and two of them may be up for a moment.
    assert (found[STANDARD_SPOT], found[STANDARD]) == ("failure", "ok")


def test_its_type_must_be_sold_there(clients: AwsClients) -> None:
    assert statuses(remarks(offerings, preparing(), clients))["imagenet-data"] == "ok"
    unknown = statuses(remarks(offerings, preparing(instanceType="m99i.large"), clients))
    assert unknown["imagenet-data"] == "failure"


def test_its_image_and_command_are_looked_at(clients: AwsClients) -> None:
    image(clients)
    found = remarks(images, preparing(command=["python", "p.py"]), clients)
    assert {one.subject: one.status for one in found if one.subject.startswith("imagenet")} == {
        "imagenet-data: /own/image": "failure"
    }
    assert any("no python" in one.found for one in found if one.subject.startswith("imagenet"))
