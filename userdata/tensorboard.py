"""User data of the TensorBoard instance, which serves the jobs' shared files on its loopback interface."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

PORT: Final = 6006
LOGS: Final = "/logs"
IDLE_MINUTES: Final = 30
"""The instance powers off, and so terminates, this long after the last open connection."""
MAX_MINUTES: Final = 720
"""The instance powers off after this time in any case."""
PACKAGES: Final = ("amazon-efs-utils", "python3.11", "python3.11-pip")
LOCK: Final = Path(__file__).with_name("tensorboard.lock")
_HOME: Final = "/opt/tensorboard"

_MOUNT: Final = """[Unit]
Description=What the jobs have written
After=network-online.target
Wants=network-online.target
[Mount]
What={file_system}:/
Where={logs}
Type=efs
Options=ro,tls,iam,accesspoint={access_point},noresvport,_netdev
"""
_SERVICE: Final = """[Unit]
Description=TensorBoard, for this machine only
RequiresMountsFor={logs}
[Service]
DynamicUser=yes
Environment=PYTHONPATH={home}/lib HOME=/tmp
ExecStart=/usr/bin/python3.11 -m tensorboard.main --logdir {logs} --host 127.0.0.1 --port {port}
Restart=on-failure
RestartSec=5
PrivateTmp=yes
ProtectHome=yes
ProtectSystem=strict
NoNewPrivileges=yes
IPAddressAllow=localhost
IPAddressDeny=any
"""
_IDLE: Final = """#!/bin/sh
# Terminates the instance after a while without requests.
[ -n "$(ss -Htn state established '( sport = :{port} )')" ] && touch /run/tensorboard-used
[ -z "$(find /run/tensorboard-used -mmin +{minutes})" ] || shutdown --poweroff now
"""
_IDLE_SERVICE: Final = f"[Service]\nType=oneshot\nExecStart=/bin/sh {_HOME}/idle.sh\n"
_IDLE_TIMER: Final = "[Timer]\nOnActiveSec=60\nOnUnitActiveSec=60\n"


def render(file_system: str, access_point: str) -> str:
    """Return the cloud-config (JSON) of an instance that shows the files behind an EFS access point.

    The SSM agent starts last, so a session finds TensorBoard running, or the error in its journal.
    """
    units = "/etc/systemd/system"
    names = {"logs": LOGS, "home": _HOME, "port": PORT, "minutes": IDLE_MINUTES}
    files = {
        f"{_HOME}/lock.txt": LOCK.read_text(encoding="utf-8"),
        f"{_HOME}/idle.sh": _IDLE.format(**names),
        f"{units}/{LOGS[1:]}.mount": _MOUNT.format(
            file_system=file_system, access_point=access_point, **names
        ),
        f"{units}/tensorboard.service": _SERVICE.format(**names),
        f"{units}/tensorboard-idle.service": _IDLE_SERVICE,
        f"{units}/tensorboard-idle.timer": _IDLE_TIMER,
    }
    install = "python3.11 -m pip install --quiet --no-deps --only-binary=:all: --require-hashes"
    body = {
        "bootcmd": ["systemctl mask --now amazon-ssm-agent"],
        "packages": list(PACKAGES),
        "write_files": [
            {"path": path, "permissions": "0644", "content": content} for path, content in files.items()
        ],
        # cloud-init runs each command even if an earlier one failed.
        "runcmd": [
            f"shutdown --poweroff +{MAX_MINUTES}",
            "touch /run/tensorboard-used",
            "systemctl daemon-reload",
            "systemctl start tensorboard-idle.timer",
            f"{install} --target {_HOME}/lib --requirement {_HOME}/lock.txt",
            "systemctl start tensorboard.service",
            "systemctl unmask amazon-ssm-agent",
            "systemctl start amazon-ssm-agent",
        ],
    }
    return f"#cloud-config\n{json.dumps(body, indent=1)}\n"
