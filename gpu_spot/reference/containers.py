"""What each kind of container gets, as a table of docs/stack-file.md: read from their model."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from contracts.agent.config import Service
from infra.catalogue.instance_sizes import INSTANCE_SIZES
from infra.kubernetes import jobs, services
from infra.schema import Service as ServiceEntry
from infra.schema import Training
from userdata.agent.machine.host import SystemHost
from userdata.agent.tenants import model
from userdata.agent.tenants.host import container as tenants
from userdata.agent.work.container import TMP, Container
from userdata.agent.work.service import slots
from userdata.agent.work.training.job_container import JobContainer, Mounts

_TYPE: Final = "g6.12xlarge"
_IMAGE: Final = f"image@sha256:{'0' * 64}"
_CAPACITY: Final = {"kind": "mixed-asg", "target": 1, "instanceTypes": (_TYPE,)}
_HEAD: Final = (
    "## What a container gets\n\n"
    "None has privileges or capabilities. `GPU_SPOT_SCRATCH` is the instance store, or the root volume of "
    "types without one; a container of a service has its caches there, and `HOME` unless it may write to its "
    "image's. "
    f"The example is a {_TYPE}: four GPUs, {INSTANCE_SIZES[_TYPE].memory_gib:g} GiB.\n"
)


def containers() -> dict[str, Container]:
    """Return an example of each kind of container on one instance type."""
    run, memory = Path("/run/gpu-spot"), int(INSTANCE_SIZES[_TYPE].memory_gib * 2**30)
    service = Service(image=_IMAGE, gpus_per_worker=2, shm_gib=None)
    worker = slots.worker_container(service, slots.slots(service, 4)[0], run, workers=2, memory=memory)
    mounts = Mounts(tuple(map(Path, ("<checkout>", "/dltraining", "<home>", "<scratch>"))), (run,))
    user = pwd.getpwuid(os.getuid()).pw_name
    job = JobContainer(SystemHost(), "job", _IMAGE, user, mounts, run, str, lambda: 4, {}, memory=memory)
    tenant = model.Tenant(name="a", uid=2001, cpus=4, memory_gib=48, image=_IMAGE, gpus=1)
    paths = tenants.TenantPaths("10.0.0.1", run, Path("/dltraining/tenants"), Path("/etc/cdi"))
    work = {"name": "a", "runsOn": "kubernetes", "capacity": _CAPACITY, "image": _IMAGE}
    code = {"repository": "https://example.com/a", "revision": "0" * 40, "command": ("train",)}
    pod = ServiceEntry.model_validate({**work, "gpusPerWorker": 2})
    job_pod = Training.model_validate({**work, **code, "volumeGiB": 0, "checkpoints": "a"})
    return {
        "service": worker,
        "job": job.container(),
        "tenant": tenants.container(tenant, 48 * 2**30, ("GPU",), paths),
        "service on Kubernetes": services.pod_container(pod),
        "job on Kubernetes": jobs.pod_container(job_pod, 1000, 1000),
    }


def _gpus(container: Container) -> str:
    return "all" if container.gpus == ("all",) else str(len(container.gpus))


def _memory(container: Container) -> str:
    return "no limit" if container.memory is None else f"{container.memory / 2**30:.0f} GiB"


def _tmp(container: Container) -> str:
    mounted = [inside for _, inside in container.writable if inside == TMP]
    return "a disk" if mounted else "in its root file system"


def _user(container: Container) -> str:
    return "the image's" if not container.user else "one of the stack"


def _network(container: Container) -> str:
    return {"host": "the host's", "bridge": "a bridge", "pod": "the pod's"}.get(container.network, "its own")


_ROWS: Final[Mapping[str, Callable[[Container], str]]] = {
    "GPUs": _gpus,
    "memory": _memory,
    "`/dev/shm`, without `shmGiB`": lambda container: f"{container.shared_memory / 2**30:.0f} GiB",
    "root file system": lambda container: "read-only" if container.has_read_only_root else "writable",
    "`/tmp`": _tmp,
    "user": _user,
    "network": _network,
    "credentials": lambda container: "of the role" if container.has_role else "with `permissions`",
}


def table() -> str:
    """Return the section."""
    kinds = containers()
    lines = [f"| | {' | '.join(kinds)} |", f"|---{'|---' * len(kinds)}|"]
    for title, text in _ROWS.items():
        cells = [
            "none" if name == "tenant" and title == "credentials" else text(container)
            for name, container in kinds.items()
        ]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join([_HEAD, *lines, ""])
