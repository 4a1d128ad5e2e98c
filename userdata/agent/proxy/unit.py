"""HAProxy's unit on a proxy: its configuration and its start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contracts.agent.config import HttpProxy
from contracts.agent.names import UNIT_HAPROXY
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.proxy import haproxy_config
from userdata.agent.proxy.haproxy_config import Paths

_CONFIG: Final = Path("etc/haproxy/haproxy.cfg")
"""Read by the unit of Amazon Linux's package and of Debian's, below the root."""
_USER: Final = "haproxy"
_CHROOT: Final = "/var/lib/haproxy"
"""Both exist with either package."""


def start(proxy: HttpProxy, paths: Paths, host: Host, root: Path) -> None:
    """Write the configuration; start HAProxy, again only if it has changed: requests in flight would end.

    Raises:
        AgentError: the package is missing, or HAProxy refuses its configuration.
    """
    text = haproxy_config.render(proxy, paths, user=_USER, chroot=_CHROOT)
    path = root / _CONFIG
    is_changed = not path.exists() or path.read_text() != text
    files.write_atomic(paths.retry_after, f"{haproxy_config.RETRY_AFTER_KEY} {proxy.retry_after_seconds}\n")
    if is_changed:
        files.write_atomic(path, text)
    host.run(["systemctl", "enable", UNIT_HAPROXY])
    try:
        host.run(["systemctl", "restart" if is_changed else "start", UNIT_HAPROXY])
    except AgentError:
        path.unlink(missing_ok=True)  # the next start restarts it
        raise
    log.info("HAProxy is configured", is_changed=is_changed)
