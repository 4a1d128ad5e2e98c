"""A machine's first boot, played with real bash: a metadata service and doubles of what is not here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests import models
from tests.node.metadata import MetadataServer
from tests.waiting import run_process

BOOTED = "var/lib/cloud/instance/gpu-spot-booted"
_PYTHON = f"#!{sys.executable} -IS"
"""Without site-packages: of its many starts each is then a few milliseconds long."""
_FAIL = """
failures = Path(os.environ["DOUBLES"]) / f"{Path(sys.argv[0]).name}-fails"
if failures.exists() and (left := int(failures.read_text())):
    failures.write_text(str(left - 1))
    sys.exit("Unable to locate credentials")
"""
AWS = f"""{_PYTHON}
import json, os, shutil, sys
from pathlib import Path
here = Path(os.environ["DOUBLES"])
service, command, *arguments = sys.argv[1:]
with (here / "calls").open("a") as log:
    log.write(json.dumps(["aws", service, command, *arguments]) + "\\n")
(here / "no-proxy").write_text(os.environ["no_proxy"])
(here / "variables").write_text(json.dumps(dict(os.environ)))
assert os.environ["NO_PROXY"] == os.environ["no_proxy"]
{_FAIL}
if service == "s3":
    *options, source, target = arguments
    assert (command, options) == ("cp", ["--only-show-errors"]), arguments
    stored = here / "s3" / source.removeprefix("s3://")
    if not stored.is_file():
        sys.exit("fatal error: An error occurred (404) when calling the HeadObject operation")
    shutil.copy(stored, target)
    sys.exit()
given = {{}}
for key, value in zip(arguments[::2], arguments[1::2], strict=True):
    name = "".join(part.title() for part in key.removeprefix("--").split("-"))
    given[name] = value
if service == "cloudwatch":  # the CLI's shorthand, and its one-metric parameters
    pairs = [pair.split("=") for pair in given.pop("Dimensions").split(",")]
    metric = {{"Dimensions": [{{"Name": k, "Value": v}} for k, v in pairs]}}
    metric |= {{key: given.pop(key) for key in ("MetricName", "Unit")}}
    metric["Value"] = float(given.pop("Value"))
    given["MetricData"] = [metric]
with (here / "asked").open("a") as log:
    log.write(json.dumps([service, command.replace("-", "_"), given]) + "\\n")
if service == "autoscaling" and (here / "no-hook").exists():
    sys.exit("An error occurred (ValidationError): No active Lifecycle Action found")
"""


@dataclass
class Machine:
    """One instance with an empty disk below ``root``."""

    root: Path
    metadata: MetadataServer
    doubles: Path = field(init=False)

    def __post_init__(self) -> None:
        self.doubles = self.root / "doubles"
        tools = self.doubles / "bin"
        tools.mkdir(parents=True)
        for folder in ("etc/systemd/system", "opt/gpu-spot", "var/lib/cloud/instance"):
            (self.root / folder).mkdir(parents=True)
        self._tool(tools / "aws", AWS)
        for name in ("systemctl", "shutdown"):
            self._tool(tools / name, self._recorder(name))
        self._tool(tools / "sleep", """#!/bin/sh\nprintf '["sleep", "%s"]\\n' "$1" >>"$DOUBLES/calls"\n""")
        for folder in ("usr/bin", "usr/sbin"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "usr/bin/python3").symlink_to(os.path.realpath(sys.executable))
        (self.root / "usr/sbin/nft").touch(mode=0o755)
        control = self.root / "opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl"
        control.parent.mkdir(parents=True)
        self._tool(control, self._recorder("cloudwatch-agent"))
        self.metadata.documents |= {
            "/latest/meta-data/instance-id": "i-0abc",
            "/latest/meta-data/tags/instance/aws:autoscaling:groupName": "gpu-spot-dev-inference-fallback-1",
        }

    def write_files(self, cloud_config: str) -> dict[str, Any]:
        """Do what cloud-init does with ``write_files`` on another instance; return the whole document."""
        (self.root / BOOTED).unlink(missing_ok=True)
        (self.root / BOOTED).with_name("user-data.txt").write_text(cloud_config, "utf-8")
        document: dict[str, Any] = yaml.safe_load(cloud_config)
        for file in document["write_files"]:
            path = self.root / file["path"].lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file["content"], "utf-8")
            path.chmod(int(file["permissions"], 8))
        return document

    def store(self, bucket: str, key: str, content: bytes) -> None:
        """Put an object into the double of S3."""
        path = self.doubles / "s3" / bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def boot(
        self, script: Path | None = None, *, is_late: bool = False, **proxies: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the boot script; ``proxies`` are variables; ``is_late``: what fails is not tried 54 times."""
        environment = {
            "PATH": f"{self.doubles / 'bin'}:{os.defpath}",
            "DOUBLES": str(self.doubles),
            "GPU_SPOT_ROOT": str(self.root),
            "GPU_SPOT_METADATA": self.metadata.url,
            **(proxies or {"NO_PROXY": "*"}),
            **({"SECONDS": "540"} if is_late else {}),  # bash counts on from what it is given
        }
        done = run_process(["bash", script or self.root / "opt/gpu-spot/boot.sh"], env=environment)
        asked = self.doubles / "asked"
        for line in asked.read_text("utf-8").splitlines() if asked.exists() else []:
            models.check(*json.loads(line))
        return done

    def calls(self, program: str) -> list[list[str]]:
        """The calls of a double so far, without its name."""
        log = self.doubles / "calls"
        lines = log.read_text("utf-8").splitlines() if log.exists() else []
        return [call[1:] for call in map(json.loads, lines) if call[0] == program]

    def fail_first(self, program: str, calls: int) -> None:
        """Let the first calls of a double fail, as without credentials."""
        file = {"aws": "aws", "cloudwatch-agent": "amazon-cloudwatch-agent-ctl"}[program]
        (self.doubles / f"{file}-fails").write_text(str(calls), "utf-8")

    def _recorder(self, name: str) -> str:
        return (
            f"{_PYTHON}\nimport json, os, sys\nfrom pathlib import Path\n"
            "with open(os.environ['DOUBLES'] + '/calls', 'a') as log:\n"
            f"    log.write(json.dumps([{name!r}, *sys.argv[1:]]) + '\\n')\n{_FAIL}"
        )

    @staticmethod
    def _tool(path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        path.chmod(0o755)
