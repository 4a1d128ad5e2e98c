"""The dev stack with an additional training job, deployed, as plain boto3 sees it."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from pulumi_on_moto import deploy, load
from pulumi_on_moto.sandbox import sandbox

ROOT = Path(__file__).resolve().parents[2]
JOB = {
    "name": "resnet",
    "capacity": {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g5.xlarge", "g6.xlarge"]},
    "repository": "https://example.com/vision/resnet.git",
    "revision": "0123456789abcdef0123456789abcdef01234567",
    "command": ["python", "train.py"],
    "dataset": "s3://datasets/imagenet/",
    "datasets": [{"snapshot": "snap-0123456789abcdef0", "path": "/data/coco", "initializationRateMib": 200}],
}


def seen() -> dict[str, Any]:
    with sandbox("us-west-2") as clients:
        deployment = deploy(clients, load(ROOT, "dev", {"training": [JOB]}))
        ec2, s3 = clients("ec2"), clients("s3")
        [template] = [
            t["LaunchTemplateId"]
            for t in ec2.describe_launch_templates()["LaunchTemplates"]
            if t["LaunchTemplateName"].startswith("gpu-spot-dev-resnet-primary")
        ]
        [version] = ec2.describe_launch_template_versions(LaunchTemplateId=template)["LaunchTemplateVersions"]
        boot = json.loads(
            base64.b64decode(version["LaunchTemplateData"]["UserData"]).decode().partition("\n")[2]
        )
        files = {file["path"]: file["content"] for file in boot["write_files"]}
        pairs = [line.split("=", 1) for line in files["/etc/gpu-spot/boot.env"].splitlines()]
        variables = {name: value.strip('"') for name, value in pairs}
        body = s3.get_object(Bucket=variables["AGENT_BUCKET"], Key=variables["AGENT_KEY"])["Body"].read()
        table = clients("dynamodb").describe_table(TableName=deployment.outputs["jobTable"])["Table"]
        root = "/gpu-spot/dev/groups/resnet"
        return {
            "groups": sorted(deployment.outputs["groups"]),
            "target": clients("ssm").get_parameter(Name=f"{root}/target")["Parameter"]["Value"],
            "is_what_was_meant": hashlib.sha256(body).hexdigest() == variables["AGENT_SHA256"],
            "disks": version["LaunchTemplateData"]["BlockDeviceMappings"],
            "agent": json.loads(files["/etc/gpu-spot/agent.json"]),
            "table": table["TableName"],
            "key": table["KeySchema"],
        }
