"""Manifests of services: Deployment, disruption budget, KEDA scaling, the queue's secret."""

from __future__ import annotations

from typing import Final

from contracts import names
from contracts.agent import config as agent
from contracts.agent.names import RUN_DIR, SCRATCH_DIR, WORK_HOME
from infra.kubernetes import deletion_cost, nodes, pod_resources, pods, secrets
from infra.kubernetes.context import ClusterContext, Manifest, named_for
from infra.schema import Service
from infra.schema.services.scaling import DAYS, ScalingFloor
from userdata.agent.work import worker_report_file
from userdata.agent.work.container import TMP, Container, worker_variables
from userdata.agent.work.service import queue as agent_queue
from userdata.agent.work.service import slots

_URL_VARIABLE: Final = "SPOT_WORK_URL"
_URL_PLACEHOLDER: Final = "amqps://broker"
_SCALE_IN_SECONDS: Final = 600
"""Delay before scaling in, as for the scaler on instances (ADR 0036)."""
_PERIOD_SECONDS: Final = 60
"""The queue watcher emits its metrics each minute; each read is charged."""
_METRIC_AGE_SECONDS: Final = 300
"""A number of workers that is older counts as unknown."""
_FALLBACK: Final = {"failureThreshold": 0, "replicas": 1, "behavior": "currentReplicasIfHigher"}
"""While the number is unknown, workers stay, and a service without any gets one, from the first error on.

Without it KEDA ends all workers in a long outage: an error that the autoscaler reads closes the operator's
scalers, and its own read, cut off, is no error. Source: keda 2.21, ``scale_handler.go``, ``fallback.go``.
"""


def service_manifests(service: Service, context: ClusterContext) -> list[Manifest]:
    """Return a service's own manifests; shared ones are in ``storage`` and ``nodes``."""
    queue = context.queues.get(service.name)
    account: Manifest = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": context.metadata(service.name, service.name),
        "automountServiceAccountToken": False,
    }
    manifests = [account, _deployment(service, queue, context), _budget(service, context)]
    if queue is not None and queue.secret is not None:
        manifests.append(_secret(service, queue.secret, context))
    manifests += secrets.secret_manifests(service, context)
    if service.is_scaled:
        manifests += [
            *deletion_cost.permissions(service, context),
            _authentication(service, context),
            _scaled_object(service, context),
        ]
    return manifests


def environment(service: Service, queue: agent.Queue | None) -> dict[str, str]:
    """Return the variables of a worker except secret ones."""
    variables = {
        **worker_variables(has_read_only_root=service.read_only_root),
        **slots.environment(slots.Slot(0, 0), RUN_DIR),
        **service.environment,
    }
    if queue is None:
        return variables
    queue_variables = agent_queue.environment(queue, _URL_PLACEHOLDER)
    if queue.secret is not None:
        del queue_variables[_URL_VARIABLE]
    return {**variables, **queue_variables}


def pod_container(service: Service) -> Container:
    """Return what the container of a service's pod gets."""
    return pod_resources.container(
        _requests(service),
        service.shm_gib,
        has_read_only_root=service.read_only_root,
        writable=tuple((path, path) for path in (SCRATCH_DIR, TMP)),
        has_role=service.uses_aws or service.queue is not None or bool(service.secrets),
    )


def _requests(service: Service) -> pod_resources.Requests:
    return pod_resources.worker_requests(service.capacity.types, service.gpus_per_worker)


def _deployment(service: Service, queue: agent.Queue | None, context: ClusterContext) -> Manifest:
    selector = {"matchLabels": {"app.kubernetes.io/name": service.name}}
    spec: Manifest = {
        "selector": selector,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": _rolling_update(service)},
        "template": _pod(service, queue, context),
    }
    if not service.is_scaled:
        spec["replicas"] = service.capacity.target * service.workers_per_slot
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": context.metadata(service.name, service.name),
        "spec": spec,
    }


def _rolling_update(service: Service) -> Manifest:
    """Return how a roll-out replaces workers: a new one first where a GPU for it is sure, else in place.

    A new worker may need a node within the pool's limit, and a Spot-only pool may have none: a roll-out that
    may take no worker away would wait for ever.
    """
    capacity = service.capacity
    slots = capacity.max_target if service.is_scaled else capacity.target
    room = nodes.max_gpus(service) - slots * service.workers_per_slot * service.gpus_per_worker
    has_room = room >= pod_resources.job_requests(capacity.types).gpus
    is_sure = has_room and "on-demand" in nodes.capacity_types(service)
    return {"maxSurge": 1, "maxUnavailable": 0 if is_sure else 1}


def _pod(service: Service, queue: agent.Queue | None, context: ClusterContext) -> Manifest:
    volumes, mounts = pods.dataset_volumes(service, context)
    limits = pod_container(service)
    volumes += [
        {"name": "run", **pods.memory_volume(16)},
        {"name": "scratch", "emptyDir": {}},
        {"name": "shm", **pods.memory_volume(limits.shared_memory // 2**20)},
    ]
    mounts += [
        {"name": "run", "mountPath": str(worker_report_file.worker_directory(RUN_DIR, 0))},
        {"name": "scratch", "mountPath": str(SCRATCH_DIR)},
        {"name": "scratch", "mountPath": str(WORK_HOME), "subPath": WORK_HOME.name},
        {"name": "scratch", "mountPath": str(TMP), "subPath": "tmp"},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - in the container
    ]
    variables = pods.environment(environment(service, queue))
    if queue is not None and queue.secret is not None:
        of_queue = secrets.synced(
            _secret_name(service), "queue", "/run/secrets/gpu-spot", {_URL_VARIABLE: "url"}
        )
        _extend((variables, volumes, mounts), of_queue)
    _extend((variables, volumes, mounts), secrets.secret_variables(service))
    container: Manifest = {
        "name": pods.CONTAINER,
        "image": service.image,
        "env": variables,
        "resources": _requests(service).resources,
        "securityContext": {
            **pods.CONTAINER_SECURITY_CONTEXT,
            "readOnlyRootFilesystem": limits.has_read_only_root,
        },
        "volumeMounts": mounts,
    }
    if service.is_scaled:
        volumes.append(deletion_cost.token_volume())
        mounts.append(deletion_cost.TOKEN_MOUNT)
        variables.append(deletion_cost.pod_variable())
    if service.command:
        container["args"] = pods.arguments(service.command)
    if service.reports_readiness:
        ready = str(slots.ready_file(slots.Slot(0, 0), RUN_DIR))
        container["readinessProbe"] = {"exec": {"command": ["test", "-e", ready]}, "periodSeconds": 5}
    spec: Manifest = {
        "terminationGracePeriodSeconds": pods.DRAIN_SECONDS,
        "serviceAccountName": service.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The kernel drops a SIGTERM for PID 1 without a handler (pid_namespaces(7)): a worker that is still
        # loading would consume work until it is killed. With a shared namespace PID 1 is the pause process.
        "shareProcessNamespace": True,
        **pods.placement(service, context),
        "topologySpreadConstraints": [_zone_spread(service)],
        "containers": [container],
        "volumes": volumes,
    }
    return pods.pod_template(service, spec, context)


def _extend(lists: tuple[list[Manifest], ...], more: tuple[list[Manifest], ...]) -> None:
    for items, added in zip(lists, more, strict=True):
        items += added


def _zone_spread(service: Service) -> Manifest:
    """Return the preference for another zone than that of the service's other workers.

    A preference only: a zone without capacity must not stop a worker that another zone has room for.
    """
    return {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": service.name}},
    }


def _budget(service: Service, context: ClusterContext) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": context.metadata(service.name, service.name),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": service.name}},
            # A pod that never became ready does not block evictions.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _secret_name(service: Service) -> str:
    assert service.queue is not None
    return named_for(f"{service.name}-queue", repr(service.queue.existing))


def _secret(service: Service, secret: str, context: ClusterContext) -> Manifest:
    objects = f'- objectName: "{secret}"\n  objectType: "secretsmanager"\n  objectAlias: "url"\n'
    data: list[Manifest] = [{"objectName": "url", "key": "url"}]
    return secrets.provider_class(_secret_name(service), service.name, objects, data, context)


def _authentication(service: Service, context: ClusterContext) -> Manifest:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": context.metadata(service.name, service.name),
        "spec": {"podIdentity": {"provider": "aws"}},
    }


def _scaled_object(service: Service, context: ClusterContext) -> Manifest:
    scaling = service.scaling
    assert scaling is not None
    per = service.workers_per_slot
    floors = [_floor(floor, per) for floor in scaling.floors]
    # By default the autoscaler leaves a tenth as it is, such as 10 workers where 11 are needed.
    # Kubernetes 1.35 and later; source: "Horizontal Pod Autoscaling", tolerance.
    scale_down = {"tolerance": "0", "stabilizationWindowSeconds": _SCALE_IN_SECONDS}
    behavior = {"scaleUp": {"tolerance": "0"}, "scaleDown": scale_down}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": context.metadata(service.name, service.name),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.name},
            "minReplicaCount": scaling.min * per,
            "maxReplicaCount": service.capacity.max_target * per,
            "pollingInterval": _PERIOD_SECONDS,
            "cooldownPeriod": _SCALE_IN_SECONDS,
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "fallback": _FALLBACK,
            "triggers": [_workers_trigger(service, context), *floors],
        },
    }


def _workers_trigger(service: Service, context: ClusterContext) -> Manifest:
    """Return the trigger on the number of workers that the queue watcher counts (ADR 0078).

    No value is an error. Cached metrics: the autoscaler would read CloudWatch every 15 s.
    Source: keda.sh, "AWS CloudWatch", "ScaledObject specification".
    """
    dimensions = {"group": service.name, "stack": context.stack, "service": names.SERVICE_QUEUES}
    metadata = {
        "namespace": names.METRIC_NAMESPACE,
        "metricName": names.METRIC_QUEUE_WORKERS,
        "dimensionName": ";".join(dimensions),
        "dimensionValue": ";".join(dimensions.values()),
        "metricStat": "Maximum",
        "metricStatPeriod": str(_PERIOD_SECONDS),
        "metricCollectionTime": str(_METRIC_AGE_SECONDS),
        "targetMetricValue": "1",
        "minMetricValue": "0",
        "ignoreNullValues": "false",
        "awsRegion": context.region,
    }
    return {
        "type": "aws-cloudwatch",
        "metadata": metadata,
        "useCachedMetrics": True,
        "authenticationRef": {"name": service.name},
    }


def _floor(floor: ScalingFloor, per: int) -> Manifest:
    # cron counts days from Sunday and has no 24:00.
    days = ",".join(str((DAYS.index(day) + 1) % 7) for day in floor.days)
    begin, end = (_cron(time, days) for time in (floor.begin, floor.end))
    metadata = {"timezone": "UTC", "start": begin, "end": end, "desiredReplicas": str(floor.min * per)}
    return {"type": "cron", "metadata": metadata}


def _cron(time: str, days: str) -> str:
    hours, minutes = ("23", "59") if time == "24:00" else time.split(":")
    return f"{int(minutes)} {int(hours)} * * {days}"
