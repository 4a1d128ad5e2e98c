"""HAProxy's unit on a proxy: its configuration and its start."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from contracts.agent.config import HttpProxy
from contracts.agent.names import UNIT_HAPROXY
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import QUICK, Host
from userdata.agent.proxy import haproxy_config
from userdata.agent.proxy.haproxy_config import Paths

_CONFIG: Final = Path("etc/haproxy/haproxy.cfg")
"""Read by the unit of Amazon Linux's package and of Debian's, below the root."""
_USER: Final = "haproxy"
_DROP_IN: Final = Path("etc/systemd/system") / f"{UNIT_HAPROXY}.d" / "gpu-spot.conf"
_RESTART: Final = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=1\n"
"""Packages' units do not restart a HAProxy that was killed."""
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
    files.write_atomic(paths.values, haproxy_config.first_values(proxy))
    drop_in = root / _DROP_IN
    if not drop_in.exists():
        drop_in.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(drop_in, _RESTART)
        host.run(["systemctl", "daemon-reload"], QUICK)
    host.run(["systemctl", "enable", UNIT_HAPROXY], QUICK)
    if is_changed:
        files.write_atomic(path, text)
    try:
        host.run(["systemctl", "restart" if is_changed else "start", UNIT_HAPROXY], QUICK)
    except AgentError:
        path.unlink(missing_ok=True)  # the next start restarts it
        raise
    log.info("HAProxy is configured", is_changed=is_changed)
