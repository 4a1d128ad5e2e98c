"""User data of a GPU instance: the cloud-config of its first boot."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contracts import codec
from contracts.agent import config, names
from contracts.agent.config import Config

LIMIT_BYTES: Final = 16_384
"""Maximum size of user data before base64. Source: EC2 user guide, "Run commands when you launch an
instance"."""

SCRIPT: Final = Path(__file__).with_name("boot.sh")
UNIT_LOG: Final = "/var/log/gpu-spot.log"
"""Log of the units, written by rsyslog and read by the CloudWatch agent."""
CLOUD_INIT_LOG: Final = "/var/log/cloud-init-output.log"

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/ -]*")
# "& stop": the image's own rules would store each line again.
_RSYSLOG: Final = f':programname, startswith, "gpu-spot-" {UNIT_LOG}\n& stop\n'
_RSYSLOG_PROXY: Final = f':programname, isequal, "haproxy" {UNIT_LOG}\n& stop\n'
_LOGROTATE: Final = f"{UNIT_LOG} {{\n  size 20M\n  rotate 2\n  missingok\n  copytruncate\n}}\n"
# By default logrotate looks at sizes once a day (logrotate.timer).
_OFTEN: Final = "[Timer]\nOnCalendar=\nOnCalendar=*:0/5\nAccuracySec=1min\nRandomizedDelaySec=0\n"
# Ubuntu 24.04 restarts services whose libraries were updated: discourse.ubuntu.com/t/44671. needrestart's
# configuration, conf.d and override_rc: its ex/needrestart.conf.
_NO_RESTART: Final = "$nrconf{override_rc}{qr(^gpu-spot-)} = 0;\n"
# New images bring updates: one of a driver or of Docker ends work. Source: /usr/lib/apt/apt.systemd.daily.
_NO_UPDATES: Final = 'APT::Periodic::Enable "0";\n'


@dataclass(frozen=True, slots=True)
class BootSettings:
    """Settings of the boot script.

    ``bucket``, ``key`` and ``sha256`` identify the agent's archive; ``cloudwatch_parameter`` is the SSM
    parameter with the CloudWatch agent's configuration. ``packages`` are installed first, from the
    repositories of the image.
    """

    agent: Config
    bucket: str
    key: str
    sha256: str
    cloudwatch_parameter: str
    packages: tuple[str, ...] = ()


def configuration(agent: Config) -> str:
    """Return the agent's configuration file; raise ``ContractError`` if the agent would reject it."""
    text = json.dumps(codec.dump(agent), indent=1) + "\n"
    config.parse(text)  # as the agent does: a dataclass does not check bounds
    return text


def render(settings: BootSettings) -> str:
    """Return the cloud-config, as JSON, a subset of YAML.

    Raises:
        ContractError: the agent would reject the configuration.
        ValueError: a value is not safe in a shell, or the text is too long.
    """
    agent_json = configuration(settings.agent)
    files = {
        "/etc/gpu-spot/boot.env": _environment(settings),
        str(names.CONFIG_PATH): agent_json,
        "/etc/rsyslog.d/30-gpu-spot.conf": _RSYSLOG + (_RSYSLOG_PROXY if settings.agent.proxy else ""),
        "/etc/logrotate.d/gpu-spot": _LOGROTATE,
        "/etc/systemd/system/logrotate.timer.d/gpu-spot.conf": _OFTEN,
        "/etc/needrestart/conf.d/gpu-spot.conf": _NO_RESTART,
        **({} if settings.agent.proxy else {"/etc/apt/apt.conf.d/99gpu-spot": _NO_UPDATES}),
        "/opt/gpu-spot/boot.sh": SCRIPT.read_text(encoding="utf-8"),
        "/var/lib/cloud/scripts/per-boot/gpu-spot": "#!/bin/sh\nexec bash /opt/gpu-spot/boot.sh\n",
    }
    written = [
        {"path": path, "permissions": "0755" if "per-boot" in path else "0644", "content": content}
        for path, content in files.items()
    ]
    body: dict[str, list[Any]] = {"write_files": written}
    if settings.packages:
        # cloud-init installs packages before it runs scripts. A log daemon among them is not started yet.
        # Source: cloud-init documentation, "Boot stages" (final stage) and the order of its modules there.
        body["packages"] = list(settings.packages)
        body["runcmd"] = [["systemctl", "start", "rsyslog.service"]]
    text = f"#cloud-config\n{json.dumps(body, indent=1)}\n"
    if (size := len(text.encode())) > LIMIT_BYTES:
        raise ValueError(
            f"user data must be at most {LIMIT_BYTES} bytes, not {size}; shorten the command or "
            "the environment"
        )
    return text


def units(agent: Config) -> tuple[str, ...]:
    """Return the systemd units that an instance with this configuration starts at every boot."""
    # On a proxy nothing reports workers or samples GPUs.
    is_for_workers = agent.proxy is None
    is_started = {
        names.UNIT_WATCH: is_for_workers,
        names.UNIT_PREPARE: agent.hooks is not None and bool(agent.hooks.launch),
        names.UNIT_VOLUME: agent.volume is not None,
        names.UNIT_EFS: bool(agent.efs),
        names.UNIT_RUN: agent.training is not None,
        names.UNIT_WORK: agent.service is not None,
        names.UNIT_TENANT_SUPERVISOR: agent.shared_host is not None,
        names.UNIT_PROXY: agent.proxy is not None,
        names.UNIT_METRICS: is_for_workers,
    }
    return tuple(unit for unit, is_wanted in is_started.items() if is_wanted)


def _environment(settings: BootSettings) -> str:
    agent = settings.agent
    values = {
        "REGION": agent.region,
        "STACK": agent.stack,
        "GROUP": agent.group,
        "LAUNCH_HOOK": agent.hooks.launch if agent.hooks else "",
        "AGENT_BUCKET": settings.bucket,
        "AGENT_KEY": settings.key,
        "AGENT_SHA256": settings.sha256,
        "CLOUDWATCH_PARAMETER": settings.cloudwatch_parameter,
        "UNITS": " ".join(units(agent)),
    }
    for name, value in values.items():
        if not _PLAIN.fullmatch(value):
            raise ValueError(
                f"boot setting {name} must be letters, digits, spaces and _ . : / -, not {value!r}"
            )
    return "".join(f'{name}="{value}"\n' for name, value in values.items())
