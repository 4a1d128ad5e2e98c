"""The subcommands ``prepare``, ``work`` and ``proxy``: a launch, a service's workers, and their proxy."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from contracts.agent.config import Service
from contracts.agent.names import JOB_USER, UNIT_WORK
from userdata.agent.aws.clients import aws_errors
from userdata.agent.machine import log
from userdata.agent.machine.background import unforeseen
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.tasks.node import STATE_POLL_SECONDS, Node

if TYPE_CHECKING:
    from userdata.agent.work.service.http_checks import HttpChecks

_MAX_TRIES: Final = 5
"""Attempts to read the release at boot; after that the one of the launch template is used."""


def prepare(node: Node) -> int:
    """Pull the image, check the GPUs, then complete the launch hook (with a warm pool on entry and on exit).

    Raises:
        AgentError: it failed, and another try may succeed.
        RefusedError: it failed for too long; the launch is abandoned.
    """
    from userdata.agent.tasks.launch import Launch

    hook = node.config.hooks.launch if node.config.hooks else ""
    if not hook:
        _prepare_image(node, lambda: None)
        return 0
    launch = Launch(node, hook)
    try:
        _prepare_image(node, launch.extend_if_due)
        launch.complete()
    except Exception as error:  # the launch has its own bound, whatever the error is
        failure = error if isinstance(error, AgentError) else unforeseen(error)
        launch.give_up_if_due(failure)
        raise failure from error
    return 0


def _prepare_image(node: Node, on_poll: Callable[[], None]) -> None:
    service, training = node.config.service, node.config.training
    if service:
        service = _read_first_release(node, service)
    gpus = _expect_gpus(service) if service else 0
    image = service.image if service else training.image if training else None
    if image:
        on_poll()
        with node.host.polling(on_poll):
            _pull(node, image)
            _check_gpus(node, image, gpus)


def work(node: Node) -> int:
    """Run the workers; in a drain only end those that an earlier process of this unit has started."""
    from userdata.agent.machine import accounts
    from userdata.agent.machine.control_groups import kill_others
    from userdata.agent.storage import scratch
    from userdata.agent.work import containers, notice
    from userdata.agent.work.service.slots import slots
    from userdata.agent.work.service.worker_reports import WorkerReports, gpu_poller
    from userdata.agent.work.service.workers import Workers

    service = node.config.service
    if service is None:
        raise ConfigError("service is missing; this instance has none")
    declared, is_draining = service, notice.is_drain_due(node.directory, node.clock)
    if not is_draining:
        kill_others(UNIT_WORK)
        node.mount()
        service = _read_first_release(node, service)
        if service.image:
            scratch.prepare_containers(node.host)
            _pull(node, service.image)
            if node.config.nvidia:  # without a launch hook no `prepare` does so
                containers.generate_missing_specification(node.host, node.kernel)
        elif service.user == JOB_USER:
            accounts.create_user(node.host, service.user)
        node.wait_outside_warm_pool()
    worker_slots = slots(service, _expect_gpus(service))
    paths = [dataset.path for dataset in node.config.datasets]
    http = _http_checks(node, service, [slot.number for slot in worker_slots])
    worker_reports = WorkerReports(
        {slot.number: slot.gpus for slot in worker_slots},
        gpu_poller(node.gpus.sample, node.run_in_background, node.clock) if node.gpus else None,
        node.clock,
        node.directory,
    )
    current = [service]
    workers = Workers(
        service,
        worker_slots,
        node.heartbeat_sender(),
        node.host,
        node.clock,
        node.directory,
        paths,
        secrets=lambda: _secret_variables(node, current[-1]),
        release=_release_fetcher(node, declared, current),
        worker_reports=worker_reports,
        run_in_background=node.run_in_background,
        http=http,
    )
    node.on_sigterm(workers.stop)
    if is_draining:
        workers.adopt()
    workers.run()
    kill_others(UNIT_WORK)
    return 0


def proxy(node: Node) -> int:
    """Configure and start HAProxy in front of a service's HTTP workers, then supervise it until stopped."""
    from contracts.registry import item as registry_item
    from contracts.registry import proxy_state
    from userdata.agent.metrics.emf import Sink
    from userdata.agent.proxy import discovery, metrics, unit
    from userdata.agent.proxy.haproxy_config import Paths
    from userdata.agent.proxy.supervisor import ProxySupervisor

    settings, config = node.config.proxy, node.config
    if settings is None:
        raise ConfigError("proxy is missing; this instance has none")
    paths = Paths(node.directory / "haproxy.sock", node.directory / "values.map")
    unit.start(settings, paths, node.host, node.kernel)
    client, table = node.clients.dynamodb(config.region), config.registry_table
    ec2, identity = node.clients.ec2(config.region), node.identity
    arns = registry_item.instance_arns(client.meta.partition, identity.region, identity.account)
    sink = Sink(config.metrics.emf_port)
    requests = metrics.RequestMetrics(config, identity.instance)

    def discover() -> tuple[discovery.HttpHost, ...]:
        hosts = discovery.describe(ec2, config.stack, config.group)
        return (*hosts, *discovery.on_premises(settings.hosts))

    def write(state: proxy_state.ProxyState, ready: int) -> None:
        sink.put(requests.line(state, ready))
        sink.flush()
        item = proxy_state.dump(config.group, arns + identity.instance, state)
        with aws_errors(f"registry {table}, proxy {identity.instance}"):
            client.put_item(TableName=table, Item=item)

    supervisor = ProxySupervisor(settings, paths, discover, write, node.clock, node.run_in_background)
    node.on_sigterm(supervisor.stop)
    supervisor.run()
    return 0


def _http_checks(node: Node, service: Service, slots: Sequence[int]) -> HttpChecks | None:
    """Return the readiness and drain of HTTP workers, answered to the proxies from now on; else None.

    Raises:
        AgentError: the port is taken.
    """
    from userdata.agent.work.service.http_checks import HttpChecks

    if service.http is None:
        return None
    checks = HttpChecks(service.http, slots, node.clock)
    try:
        checks.serve()
    except OSError as error:
        raise AgentError(f"service.http.checkPort: {service.http.check_port}: {error.strerror}") from None
    return checks


def released(node: Node, service: Service) -> Service:
    """Return a service with its current release.

    A change between container and process applies to new instances only; the declared service is then
    returned unchanged.

    Raises:
        AgentError: the release cannot be read.
    """
    if node.config.on_premises:
        return service
    from userdata.agent.aws import releases

    client = node.clients.dynamodb(node.config.region)
    release = releases.read(client, node.config.registry_table, node.config.group, node.identity.instance)
    if release is None or bool(release.image) != bool(service.image):
        return service
    secrets, queues = release.secrets, release.queue
    return replace(
        service,
        image=release.image or None,
        command=release.command,
        environment=dict(release.environment),
        secrets=service.secrets if secrets is None else dict(secrets),
        queue=service.queue if queues is None else next(iter(queues), None),
    )


def _read_first_release(node: Node, service: Service) -> Service:
    """Return the service that workers start from at boot: the declared one if the release is not readable."""
    for _ in range(_MAX_TRIES):
        try:
            return released(node, service)
        except AgentError as error:
            log.warning("release not read", error=str(error))
            node.clock.sleep(STATE_POLL_SECONDS)
    log.error("release not read; using the declared one", image=service.image)
    return service


def _release_fetcher(node: Node, declared: Service, fetched: list[Service]) -> Callable[[], Service]:
    """Return a function that resolves and fetches the current release; it may raise `AgentError`.

    ``fetched`` ends with the service that was fetched last.
    """

    def renew() -> Service:
        service = released(node, declared)
        if service.image and service.image != fetched[-1].image:
            _pull(node, service.image)
        fetched[:] = [service]
        return service

    return renew


def _secret_variables(node: Node, service: Service) -> dict[str, str]:
    """Return the service's secret variables and those of its queue, with their current values."""
    return {**_queue_variables(node, service), **node.secret_variables(service.secrets)}


def _queue_variables(node: Node, service: Service) -> dict[str, str]:
    if service.queue is None:
        return {}
    from userdata.agent.aws.clients import read_secret
    from userdata.agent.work.service import queue

    if service.queue.secret is None:
        return queue.environment(service.queue)
    client = node.clients.secretsmanager(node.config.region)
    return queue.environment(service.queue, read_secret(client, service.queue.secret))


def _expect_gpus(service: Service) -> int:
    from userdata.agent.work.service.slots import gpu_count

    return service.gpus or gpu_count()


def _check_gpus(node: Node, image: str, expected: int) -> None:
    """Check once that containers get the GPUs, before any work is scheduled on this instance."""
    from userdata.agent.work import containers
    from userdata.agent.work.service.slots import gpu_count

    if node.config.nvidia:
        containers.check_gpus(node.host, image, expected or gpu_count())


def _pull(node: Node, image: str) -> None:
    from userdata.agent.work import containers

    node.images.pull(image, partial(containers.pull, node.host, image, partial(ecr_password, node)))


def ecr_password(node: Node, region: str) -> str:
    """Return the password for a login at ECR in a region, valid for twelve hours."""
    registry = node.clients.ecr(region)
    with aws_errors("ecr login"):
        token = registry.get_authorization_token()["authorizationData"][0]["authorizationToken"]
    return base64.b64decode(token).decode().split(":", 1)[1]
