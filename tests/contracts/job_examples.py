"""A full example of a job's item: no field is at its default."""

from __future__ import annotations

from contracts.agent.nodes import JobNodes
from contracts.jobs.item import HostFaults, JobItem, Retries

JOB = JobItem(
    state="running",
    reason="a reason",
    revision="a" * 40,
    changed_at=1800000000.0,
    holder="i-1",
    lease_expires_at=1800000120.0,
    token=107,
    volume="vol-1",
    writer=106,
    retries=Retries("a" * 40, 1),
    host_faults=HostFaults("a" * 40, 2, 1799990000.0),
    experiments=("sweep-1", "sweep-2"),
    nodes=JobNodes(2, 4),
)
JOB_ITEM = {
    "job": {"S": "resnet"},
    "state": {"S": "running"},
    "reason": {"S": "a reason"},
    "revision": {"S": "a" * 40},
    "changed": {"N": "1800000000"},
    "holder": {"S": "i-1"},
    "leaseUntil": {"N": "1800000120"},
    "token": {"N": "107"},
    "volume": {"S": "vol-1"},
    "writer": {"N": "106"},
    "retries": {"M": {"revision": {"S": "a" * 40}, "count": {"N": "1"}}},
    "hostFaults": {
        "M": {"revision": {"S": "a" * 40}, "count": {"N": "2"}, "checkpoint": {"N": "1799990000"}}
    },
    "experiments": {"L": [{"S": "sweep-1"}, {"S": "sweep-2"}]},
    "nodes": {"M": {"min": {"N": "2"}, "max": {"N": "4"}}},
}
