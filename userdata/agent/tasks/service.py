"""What a launch waits for, and the subcommands of instances that serve."""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

from contracts.agent.config import Service
from contracts.agent.names import JOB_USER
from userdata.agent.aws.clients import asking
from userdata.agent.machine import log
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.tasks.node import GATE_EVERY, Node

_HOOK_WAIT: Final = 120.0
_TRIES: Final = 5
"""So often the release is asked for at a boot; then the one serves that came with the launch."""
_KEPT: Final = 2
"""Images that stay on the disk: what runs, and what ran before it."""


def prepare(node: Node) -> int:
    """Make ready what a launch waits for, then let it go on: with a warm pool once in, and once out.

    The hook may begin after us. If it has not within two minutes, this boot is no launch but a restart.
    """
    service, training = node.config.service, node.config.training
    if service:
        service = _first(node, service)
    name = node.config.hooks.launch if node.config.hooks else ""
    gpus = _expect_gpus(service) if service else 0
    image = service.image if service else training.image if training else None
    if image:
        with node.holding(name) if name else nullcontext():
            _pull(node, image)
            _check_gpus(node, image, gpus)
    if not name:
        return 0
    end = node.clock.monotonic() + _HOOK_WAIT
    while not node.complete(name, "CONTINUE"):
        if node.clock.monotonic() >= end:
            log.info("hook not active", hook=name)
            return 0
        node.clock.sleep(GATE_EVERY)
    return 0


def work(node: Node) -> int:
    """Run the workers."""
    from userdata.agent.machine import accounts
    from userdata.agent.machine.background import Beside
    from userdata.agent.work.service.pulses import Pulses
    from userdata.agent.work.service.workers import Workers, slots

    service = node.config.service
    if service is None:
        raise ConfigError("service: missing; this instance has none")
    node.mount()
    declared, service = service, _first(node, service)
    if service.image:
        _pull(node, service.image)
    elif service.user == JOB_USER:
        accounts.make(node.host, service.user)
    node.gate()
    places = slots(service, _expect_gpus(service))
    paths = [dataset.path for dataset in node.config.datasets]
    pulses = Pulses(
        {slot.number: slot.gpu for slot in places},
        Beside(node.gpus.look, node.aside) if node.gpus else None,
        node.clock,
        node.directory,
    )
    workers = Workers(
        service,
        places,
        node.heart(),
        node.host,
        node.clock,
        node.directory,
        paths,
        secrets=partial(_queue, node, service),
        release=_renewing(node, declared, service),
        pulses=pulses,
        aside=node.aside,
    )
    node.on_sigterm(workers.stop)
    workers.run()
    return 0


def released(node: Node, service: Service) -> Service:
    """Return a service with what its workers are to be started from now.

    A container in the place of a process, or the reverse, comes with new instances only: what is declared
    stays.

    Raises:
        AgentError: that cannot be read.
    """
    if node.config.on_premises:
        return service
    from userdata.agent.aws import releases

    client = node.clients.dynamodb(node.config.region)
    one = releases.read(client, node.config.registry_table, node.config.group, node.identity.instance)
    if one is None or bool(one.image) != bool(service.image):
        return service
    return replace(service, image=one.image or None, command=one.command, environment=dict(one.environment))


def _first(node: Node, service: Service) -> Service:
    """Return what workers start from at a boot: what is declared where nobody can be asked."""
    for _ in range(_TRIES):
        try:
            return released(node, service)
        except AgentError as error:
            log.warning("release not read", error=str(error))
            node.clock.sleep(GATE_EVERY)
    log.error("release not read; the declared one serves", image=service.image)
    return service


def _renewing(node: Node, declared: Service, first: Service) -> Callable[[], Service]:
    """Return who says what workers start from, and has fetched it by then; raises `AgentError`."""
    images = [first.image]

    def renew() -> Service:
        from userdata.agent.work import containers

        found = released(node, declared)
        if found.image and found.image != images[-1]:
            _pull(node, found.image)
            images[:] = [*(image for image in images if image != found.image), found.image]
            for old in images[:-_KEPT]:
                containers.forget(node.host, old or "")
            del images[:-_KEPT]
        return found

    return renew


def _queue(node: Node, service: Service) -> dict[str, str]:
    """Return what workers are told of their queue, as its secret is now; nothing without a queue."""
    if service.queue is None:
        return {}
    from userdata.agent.aws import secrets
    from userdata.agent.work.service import queue

    if service.queue.secret is None:
        return queue.environment(service.queue)
    client = node.clients.secretsmanager(node.config.region)
    return queue.environment(service.queue, secrets.read(client, service.queue.secret))


def _expect_gpus(service: Service) -> int:
    from userdata.agent.work.service.workers import gpu_count

    return service.gpus or gpu_count()


def _check_gpus(node: Node, image: str, expected: int) -> None:
    """See once that containers get the GPUs: what is missing is said before any work comes here."""
    from userdata.agent.work import containers
    from userdata.agent.work.service.workers import gpu_count

    if node.config.nvidia:
        containers.check_gpus(node.host, image, expected or gpu_count())


def _pull(node: Node, image: str) -> None:
    from userdata.agent.work import containers

    containers.pull(node.host, image, partial(ecr_password, node))


def ecr_password(node: Node) -> str:
    """Return the password of a registry login, good for twelve hours.

    Long enough for the pull that follows.
    """
    registry = node.clients.ecr(node.config.region)
    with asking("ecr login"):
        token = registry.get_authorization_token()["authorizationData"][0]["authorizationToken"]
    return base64.b64decode(token).decode().split(":", 1)[1]
