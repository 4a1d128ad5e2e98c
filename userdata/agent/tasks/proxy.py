"""The subcommand ``proxy``: HAProxy in front of a service's HTTP workers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contracts.agent.names import UNIT_HAPROXY
from contracts.registry import item as registry_item
from contracts.registry import proxy_state
from contracts.registry.proxy_state import ProxyState
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError, ConfigError
from userdata.agent.proxy.haproxy_config import Paths
from userdata.agent.tasks.node import Node

_CONFIG: Final = Path("etc/haproxy/haproxy.cfg")
"""Read by the unit of Amazon Linux's package and of Debian's, below the root."""
_USER: Final = "haproxy"
_CHROOT: Final = "/var/lib/haproxy"
"""Both exist with either package."""


def proxy(node: Node) -> int:
    """Configure and start HAProxy, then supervise it until stopped."""
    from userdata.agent.aws.clients import aws_errors
    from userdata.agent.metrics.emf import Sink
    from userdata.agent.proxy import discovery, metrics
    from userdata.agent.proxy.supervisor import ProxySupervisor

    settings, config = node.config.proxy, node.config
    if settings is None:
        raise ConfigError("proxy: missing; this instance has none")
    paths = Paths(node.directory / "haproxy.sock", node.directory / "retry-after.map")
    _start_haproxy(node, paths)
    client, table = node.clients.dynamodb(config.region), config.registry_table
    ec2, identity = node.clients.ec2(config.region), node.identity
    arns = registry_item.instance_arns(client.meta.partition, identity.region, identity.account)
    sink = Sink(config.metrics.emf_port)
    requests = metrics.RequestMetrics(config, identity.instance)

    def discover() -> tuple[discovery.HttpHost, ...]:
        hosts = discovery.describe(ec2, config.stack, config.group)
        return (*hosts, *discovery.on_premises(settings.hosts))

    def write(state: ProxyState, ready: int) -> None:
        sink.put(requests.line(state, ready))
        sink.flush()
        item = proxy_state.dump(config.group, arns + identity.instance, state)
        with aws_errors(f"registry {table}, proxy {identity.instance}"):
            client.put_item(TableName=table, Item=item)

    supervisor = ProxySupervisor(settings, paths, discover, write, node.clock, node.run_in_background)
    node.on_sigterm(supervisor.stop)
    supervisor.run()
    return 0


def _start_haproxy(node: Node, paths: Paths) -> None:
    """Write the configuration; start HAProxy, again only if it has changed: requests in flight would end.

    Raises:
        AgentError: the package is missing, or HAProxy refuses its configuration.
    """
    from userdata.agent.proxy import haproxy_config

    assert node.config.proxy is not None
    text = haproxy_config.render(node.config.proxy, paths, user=_USER, chroot=_CHROOT)
    path = node.kernel / _CONFIG
    is_changed = not path.exists() or path.read_text() != text
    files.write_atomic(
        paths.retry_after, f"{haproxy_config.RETRY_AFTER_KEY} {node.config.proxy.retry_after_seconds}\n"
    )
    if is_changed:
        files.write_atomic(path, text)
    node.host.run(["systemctl", "enable", UNIT_HAPROXY])
    try:
        node.host.run(["systemctl", "restart" if is_changed else "start", UNIT_HAPROXY])
    except AgentError:
        path.unlink(missing_ok=True)  # the next start restarts it
        raise
    log.info("HAProxy is configured", is_changed=is_changed)
