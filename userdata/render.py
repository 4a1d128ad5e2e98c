"""Boot data: what cloud-init gets on a GPU instance's first boot."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts import codec
from contracts.agent import config, names
from contracts.agent.config import Config

LIMIT_BYTES: Final = 16_384
"""Of user data before base64 (EC2 user guide, "Run commands when you launch an instance")."""

SCRIPT: Final = Path(__file__).with_name("boot.sh")
UNIT_LOG: Final = "/var/log/gpu-spot.log"
"""The units' lines of the journal, where the CloudWatch agent reads them."""
CLOUD_INIT_LOG: Final = "/var/log/cloud-init-output.log"

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/ -]*")
_RSYSLOG: Final = f':programname, startswith, "gpu-spot-" {UNIT_LOG}\n'
_LOGROTATE: Final = f"{UNIT_LOG} {{\n  size 20M\n  rotate 2\n  missingok\n  copytruncate\n}}\n"


@dataclass(frozen=True, slots=True)
class BootSettings:
    """What the boot script must be told.

    ``bucket``, ``key`` and ``sha256`` are those of the agent's archive; ``cloudwatch_parameter`` holds the
    CloudWatch agent's configuration.
    """

    agent: Config
    bucket: str
    key: str
    sha256: str
    cloudwatch_parameter: str


def configuration(agent: Config) -> str:
    """Return the agent's configuration file; raise ``ContractError`` for one that the agent would refuse."""
    told = json.dumps(codec.dump(agent), indent=1) + "\n"
    config.parse(told)  # as the agent will: a dataclass checks no bounds by itself
    return told


def render(settings: BootSettings) -> str:
    """Return the cloud-config, as JSON, which is YAML without its traps.

    Raise ``ContractError`` for a configuration that the agent would refuse, and ``ValueError`` for a value
    that the shell could misread and for a text that is too big.
    """
    told = configuration(settings.agent)
    files = {
        "/etc/gpu-spot/boot.env": _environment(settings),
        str(names.CONFIG_PATH): told,
        "/etc/rsyslog.d/30-gpu-spot.conf": _RSYSLOG,
        "/etc/logrotate.d/gpu-spot": _LOGROTATE,
        "/opt/gpu-spot/boot.sh": SCRIPT.read_text(encoding="utf-8"),
    }
    body = {
        "write_files": [
            {"path": path, "permissions": "0644", "content": content} for path, content in files.items()
        ],
        "runcmd": [["bash", "/opt/gpu-spot/boot.sh"]],
    }
    text = f"#cloud-config\n{json.dumps(body, indent=1)}\n"
    if (size := len(text.encode())) > LIMIT_BYTES:
        raise ValueError(f"boot data is {size} bytes, allowed: at most {LIMIT_BYTES}")
    return text


def units(agent: Config) -> tuple[str, ...]:
    """Return the units that an instance with this configuration starts at every boot."""
    wanted = {
        names.UNIT_WATCH: True,
        names.UNIT_PREPARE: agent.hooks is not None and bool(agent.hooks.launch),
        names.UNIT_VOLUME: agent.volume is not None,
        names.UNIT_EFS: bool(agent.efs),
        names.UNIT_RUN: agent.training is not None,
        names.UNIT_WORK: agent.service is not None,
        names.UNIT_LANDLORD: agent.shared_host is not None,
        names.UNIT_METRICS: True,
    }
    return tuple(unit for unit, is_wanted in wanted.items() if is_wanted)


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
                f"boot setting {name} is {value!r}, allowed: letters, digits, spaces and _ . : / -"
            )
    return "".join(f'{name}="{value}"\n' for name, value in values.items())
