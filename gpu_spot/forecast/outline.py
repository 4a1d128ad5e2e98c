"""What a stack will do, entry by entry: the end of a forecast, a comment and ``deploy --local``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from gpu_spot.forecast.ceiling import ceiling, cost
from gpu_spot.markdown import label
from gpu_spot.preflight.stack import with_all_nodes
from gpu_spot.text import OUTLINE
from infra.catalogue import accelerators as catalogue
from infra.schema import Service, Settings, SharedHost, Training
from infra.schema.work import GroupEntry

HEAD: Final = (
    *("entry", "runs", "weights and data", "who may call it", "on AWS it may", "at most an hour"),
    "not checked",
)
_MAX_CELL: Final = 1000


class OutlineRow(NamedTuple):
    """A row of the table; its columns are those of ``HEAD``."""

    entry: str
    runs: str
    data: str
    callers: str
    access: str
    ceiling: str
    unchecked: str


def rows(settings: Settings) -> Iterator[OutlineRow]:
    """Yield the entries of a stack in the order of its file."""
    region = settings.region
    yield from (_service(service, region) for service in settings.services)
    yield from (_job(job, region) for job in map(with_all_nodes, settings.jobs))
    yield from (_host(host, region) for host in settings.shared_hosts)


def markdown(settings: Settings) -> str:
    """Return the table in Markdown, below its heading."""
    table = [HEAD, ["---"] * len(HEAD), *rows(settings)]
    lines = ("| " + " | ".join(map(_cell, row)) + " |" for row in table)
    return "\n".join([OUTLINE, "", *lines, "", total(settings), ""])


def _cell(text: str) -> str:
    return label(text, allowed=";×$*?=+", max_length=_MAX_CELL).replace("*", r"\*")


def total(settings: Settings) -> str:
    """Return the most that all of it may cost."""
    return f"All instances together cost {ceiling(settings)}; `gpu-spot forecast` has the cost of a month."


def _service(service: Service, region: str) -> OutlineRow:
    capacity = service.capacity
    workers = capacity.target * service.workers_per_slot
    gpus = (
        ""
        if not capacity.is_nvidia
        else f" × {service.gpus_per_worker} GPU{'s'[: service.gpus_per_worker > 1]}"
    )
    shared = f", {service.slots_per_gpu} on each GPU" if service.slots_per_gpu > 1 else ""
    maximum = capacity.max_target * service.workers_per_slot
    scaled = f", up to {maximum} by its load" if service.is_scaled else ""
    runs = f"{workers} worker{'s'[: workers != 1]}{gpus}{shared}{scaled}"
    if service.image is None and not service.command:
        runs += ", which only report"
    return OutlineRow(
        service.name, runs, _joined(_data(service)), _callers(service), _access(service),
        _ceiling(service, region), _joined(_unchecked(service)),
    )  # fmt: skip


def _callers(service: Service) -> str:
    if service.http is not None:
        allowed = "anyone" if service.http.public else ", ".join(service.http.allowed_sources) or "nobody yet"
        return f"over HTTP: {allowed}"
    if service.queue is None:
        return "nobody"
    where = "an existing queue" if _has_existing_queue(service) else "the stack's queue"
    return f"who may send to {where} ({service.queue.title})"


def _job(job: Training, region: str) -> OutlineRow:
    gpus = sorted({catalogue.lookup(kind).accelerators for kind in job.capacity.types})
    nodes = f"{job.nodes} nodes × " if job.nodes.max > 1 else ""
    runs = f"{nodes}{' or '.join(map(str, gpus))} GPU{'s'[: gpus != [1]]}, {_when(job)}"
    data = list(_data(job))
    if job.dataset is not None:
        data.append(f"{job.dataset}, copied")
    data.append(f"checkpoints: {job.checkpoints}")
    return OutlineRow(
        job.name, runs, _joined(data), "nobody", _access(job), _ceiling(job, region), _joined(_unchecked(job))
    )


def _when(job: Training) -> str:
    schedule = job.schedule
    if schedule is None:
        return f"until revision {job.revision[:7]} is done"
    at = f"at {schedule.at} ({schedule.time_zone})" if schedule.at else "by people only (gpu-spot jobs run)"
    deadline = f", each done within {job.deadline_after}" if job.deadline_after else ""
    return f"{at}{deadline}; {'one waits' if schedule.overlap == 'wait' else 'none'} during another run"


def _host(host: SharedHost, region: str) -> OutlineRow:
    tenants = len(host.tenants)
    allowed = ", ".join(host.allowed_sources) or "Session Manager only"
    return OutlineRow(
        host.name, f"{tenants} tenant{'s'[: tenants != 1]} on one instance", "a volume for each tenant",
        allowed, "nothing", _ceiling(host, region), "that its images exist and start",
    )  # fmt: skip


def _ceiling(entry: GroupEntry, region: str) -> str:
    usd, assumed = cost(entry.capacity, region)
    return f"${usd:,.2f}{' (assumed)' if assumed else ''}"


def _data(entry: Service | Training) -> Iterator[str]:
    yield from (f"{dataset.snapshot} at {dataset.path}" for dataset in entry.datasets)
    if isinstance(entry, Service) and not entry.datasets:
        yield "what its image has or loads" if entry.image is not None else "the machine image"


def _access(entry: Service | Training) -> str:
    actions = [action for item in entry.permissions for action in item.actions]
    actions += [f"policy {arn.rpartition('/')[2]}" for arn in entry.policy_arns]
    if entry.secrets:
        actions.append(f"read {', '.join(dict.fromkeys((*entry.secret_names, *entry.parameter_names)))}")
    return _joined(actions) or "nothing of its own"


def _unchecked(entry: Service | Training) -> Iterator[str]:
    if entry.image is not None:
        yield "that the image exists and starts"
    if entry.secrets:
        yield "that its secrets exist"
    if isinstance(entry, Training):
        yield "that the revision exists"
        if entry.dataset is not None and entry.dataset_gib is None:
            yield "that the volume holds the dataset (datasetGiB)"
        if entry.has_deadline:
            yield "that the command reports its steps"
    elif _has_existing_queue(entry):
        yield "that the queue exists"


def _has_existing_queue(service: Service) -> bool:
    """Return whether the queue was there before the stack; one on another service's broker was not."""
    queue = service.queue
    return queue is not None and queue.existing is not None and queue.broker_of is None


def _joined(parts: Sequence[str] | Iterator[str]) -> str:
    return "; ".join(parts)
