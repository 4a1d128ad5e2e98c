"""Processes of ``tests.apart`` start with the loaded modules and share no state."""

from __future__ import annotations

import asyncio
import sys
import warnings

import pulumi

from gpu_spot.declared.stackfile import load
from pulumi_on_moto import deploy, sandbox
from pulumi_on_moto.fixes.speedups import clients
from tests.apart import apart
from tests.infra.declared import ROOT

CALLS: list[str] = []


def loaded(name: str) -> bool:
    CALLS.append(name)
    return name in sys.modules and len(CALLS) == 1


def test_the_server_has_imported_the_provider_and_each_process_is_fresh() -> None:
    # If the server cannot import its list, it fails silently and each process imports the modules.
    assert apart(loaded, "pulumi_aws.ec2.instance")
    assert apart(loaded, "rehearsal.rehearse")


def read() -> int:
    return clients._read.cache_info().currsize


def test_the_server_has_read_the_models_of_services() -> None:
    assert apart(read) >= 30


def deployed_after_an_ended_loop() -> int:
    pulumi.Output.from_input("never awaited")
    asyncio.run(asyncio.sleep(0))  # the loop of the output is no longer this thread's
    with sandbox("us-west-2") as clients, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return len(deploy(clients, load(ROOT / "packages/pulumi-on-moto/tests/sample", "dev")).resources)


def test_a_program_does_not_wait_for_outputs_of_what_ran_before() -> None:
    assert apart(deployed_after_an_ended_loop) > 10
