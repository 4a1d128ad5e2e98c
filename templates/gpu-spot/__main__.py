"""GPU workers on Spot Instances. All keys of a service: docs/stack-file.md of gpu-spot."""

import pulumi

from infra.package.components import Service

config = pulumi.Config()

workers = Service(
    "workers",
    {
        "network": {"cidr": config.require("cidr"), "zones": config.require("zones").split(",")},
        "capacity": {
            "kind": "mixed-asg",
            "target": config.require_int("target"),
            "instanceTypes": config.require("instanceTypes").split(","),
        },
        # Add your workload: a container image with its digest, or a command of the machine image; a queue.
        # "image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/mine@sha256:…",
        # "queue": {"kind": "sqs"},
    },
)

pulumi.export("group", workers.primary)
pulumi.export("control", workers.control)
pulumi.export("followDecisions", workers.follow_decisions)
