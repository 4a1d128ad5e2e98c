"""pytest fixture for pulumi_on_moto: a Pulumi program, deployed once for all tests of a process.

pytest loads this module in every run if the package is installed; moto and pulumi are imported when a test
requests the fixture.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pulumi_on_moto import Deployment, Stack


class OneProgram:
    """Deploys the first requested stack, and rejects another: Pulumi's runtime is global."""

    def __init__(self, closing: contextlib.ExitStack) -> None:
        self._closing = closing
        self._stack: Stack | None = None
        self._deployment: Deployment | None = None

    def deployed(self, stack: Stack) -> Deployment:
        """Return the deployment of a stack: the same for all tests."""
        if self._deployment is None:
            from pulumi_on_moto import deploy, sandbox

            clients = self._closing.enter_context(sandbox(stack.region))
            with warnings.catch_warnings():
                # pulumi-aws warns of its deprecated classes at import.
                warnings.filterwarnings("ignore", category=DeprecationWarning, module="pulumi_aws")
                self._stack, self._deployment = stack, deploy(clients, stack)
        elif stack != self._stack:
            raise pytest.UsageError(
                f"stack {stack.project}/{stack.stack}: this process has deployed "
                f"{self._deployment.project}/{self._deployment.stack}, and can hold only one program; "
                "run these tests in a separate pytest process"
            )
        return self._deployment


@pytest.fixture(scope="session")
def pulumi_stack() -> Stack:
    """The stack to deploy; override it in conftest.py or a test module: ``return load("shop", "dev")``."""
    raise pytest.UsageError("pulumi_deployment needs a session fixture pulumi_stack that returns load(…)")


@pytest.fixture(scope="session")
def pulumi_program() -> Iterator[OneProgram]:
    """The deployment of this process; its sandbox is closed at the end of the session."""
    with contextlib.ExitStack() as closing:
        yield OneProgram(closing)


@pytest.fixture
def pulumi_deployment(pulumi_program: OneProgram, pulumi_stack: Stack) -> Deployment:
    """The deployment of ``pulumi_stack`` in moto: clients, outputs, resources, functions.

    It is created once and shared by all tests of the process, so a test sees the writes of earlier ones.
    Loaded functions are discarded before each test.
    """
    deployment = pulumi_program.deployed(pulumi_stack)
    deployment.functions.cool()
    return deployment
