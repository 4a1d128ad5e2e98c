"""A service: a Deployment of workers, its disruption budget, what KEDA scales it by, its queue's URL."""

from __future__ import annotations

from typing import Final

from contracts.agent import config as agent
from contracts.agent.names import RUN_DIR
from infra.kubernetes import pod_resources, pods
from infra.kubernetes.place import ClusterPlace, Object
from infra.kubernetes.triggers import TRIGGERS
from infra.schema import Service
from infra.schema.services.scaling import DAYS, Scaling, ScalingFloor
from userdata.agent.work import worker_report_file as tell
from userdata.agent.work.service import queue as told_queue
from userdata.agent.work.service import workers

_URL: Final = "SPOT_WORK_URL"
_ANY_URL: Final = "amqps://broker"
_SCALE_IN_SECONDS: Final = 600
"""As long as no more were wanted before there are fewer: as the scaler on instances has it (ADR 0036)."""
_POLL_SECONDS: Final = 15


def objects(service: Service, place: ClusterPlace) -> list[Object]:
    """Return an entry's own objects; those that it shares with others stand in ``storage`` and ``nodes``."""
    queue = place.queues.get(service.name)
    account: Object = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": place.metadata(service.name, service.name),
        "automountServiceAccountToken": False,
    }
    found = [account, _deployment(service, queue, place), _budget(service, place)]
    if queue is not None and queue.secret is not None:
        found.append(_secret(service, queue.secret, place))
    if queue is not None and scales(service):
        found += [_authentication(service, queue, place), _scaled(service, queue, place)]
    return found


def scales(service: Service) -> bool:
    """Whether KEDA moves the number of workers, and nobody else does."""
    return service.scaling is not None and not service.scaling.dry_run


def environment(service: Service, queue: agent.Queue | None) -> dict[str, str]:
    """Return the variables of a worker but those that are secret."""
    variables = {**workers.environment(workers.Slot(0, 0), RUN_DIR), **service.environment}
    if queue is None:
        return variables
    told = told_queue.environment(queue, _ANY_URL)
    if queue.secret is not None:
        del told[_URL]
    return {**variables, **told}


def _deployment(service: Service, queue: agent.Queue | None, place: ClusterPlace) -> Object:
    selector = {"matchLabels": {"app.kubernetes.io/name": service.name}}
    spec: Object = {
        "selector": selector,
        # A GPU more for each worker that is replaced would be a node more.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": _pod(service, queue, place),
    }
    if not scales(service):
        spec["replicas"] = service.capacity.target * service.workers_per_slot
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": place.metadata(service.name, service.name),
        "spec": spec,
    }


def _pod(service: Service, queue: agent.Queue | None, place: ClusterPlace) -> Object:
    volumes, mounts = pods.dataset_volumes(service, place)
    volumes += [{"name": "run", **pods.memory(16)}, {"name": "tmp", **pods.memory()}]
    mounts += [
        {"name": "run", "mountPath": str(tell.place(RUN_DIR, 0))},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in there
    ]
    variables = pods.environment(environment(service, queue))
    if queue is not None and queue.secret is not None:
        reference = {"name": _secret_name(service), "key": "url"}
        variables.append({"name": _URL, "valueFrom": {"secretKeyRef": reference}})
        # The driver makes the Secret once a pod mounts it, and follows it while one does.
        reads = {"secretProviderClass": _secret_name(service)}
        driver = {"driver": "secrets-store.csi.k8s.io", "readOnly": True, "volumeAttributes": reads}
        volumes.append({"name": "queue", "csi": driver})
        mounts.append({"name": "queue", "mountPath": "/run/secrets/gpu-spot", "readOnly": True})
    container: Object = {
        "name": pods.CONTAINER,
        "image": service.image,
        "env": variables,
        "resources": pod_resources.of_worker(service.capacity.types).resources,
        "securityContext": {**pods.CONFINED, "readOnlyRootFilesystem": True},
        "volumeMounts": mounts,
    }
    if service.command:
        container["args"] = pods.arguments(service.command)
    if service.says_ready:
        ready = str(workers.ready_file(workers.Slot(0, 0), RUN_DIR))
        container["readinessProbe"] = {"exec": {"command": ["test", "-e", ready]}, "periodSeconds": 5}
    spec: Object = {
        "terminationGracePeriodSeconds": pods.GRACE_SECONDS,
        "serviceAccountName": service.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # The kernel drops a SIGTERM for a first process that has no handler yet (pid_namespaces(7)): a worker
        # that still loads would take work until it is killed. So the first one is the pod's.
        "shareProcessNamespace": True,
        **pods.placement(service),
        "containers": [container],
        "volumes": volumes,
    }
    return pods.template(place.labels(service.name), spec)


def _budget(service: Service, place: ClusterPlace) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": place.metadata(service.name, service.name),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": {"app.kubernetes.io/name": service.name}},
            # One that never became ready holds nothing up.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _secret_name(service: Service) -> str:
    return f"{service.name}-queue"


def _secret(service: Service, secret: str, place: ClusterPlace) -> Object:
    name = _secret_name(service)
    wanted = f'- objectName: "{secret}"\n  objectType: "secretsmanager"\n  objectAlias: "url"\n'
    return {
        "apiVersion": "secrets-store.csi.x-k8s.io/v1",
        "kind": "SecretProviderClass",
        "metadata": place.metadata(name, service.name),
        "spec": {
            "provider": "aws",
            "parameters": {"region": place.region, "usePodIdentity": "true", "objects": wanted},
            "secretObjects": [
                {"secretName": name, "type": "Opaque", "data": [{"objectName": "url", "key": "url"}]}
            ],
        },
    }


def _authentication(service: Service, queue: agent.Queue, place: ClusterPlace) -> Object:
    by_pod = {"provider": "aws"}
    spec: Object = {"podIdentity": by_pod}
    if queue.secret is not None:
        secrets = [{"parameter": "host", "name": queue.secret}]
        spec = {"awsSecretManager": {"podIdentity": by_pod, "region": place.region, "secrets": secrets}}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "TriggerAuthentication",
        "metadata": place.metadata(service.name, service.name),
        "spec": spec,
    }


def _scaled(service: Service, queue: agent.Queue, place: ClusterPlace) -> Object:
    scaling = service.scaling
    assert scaling is not None
    per = service.workers_per_slot
    triggers = [_queue_trigger(service, queue, place), *_floors(scaling, per)]
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": place.metadata(service.name, service.name),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": service.name},
            "minReplicaCount": scaling.min * per,
            "maxReplicaCount": service.capacity.most_target * per,
            "pollingInterval": _POLL_SECONDS,
            "cooldownPeriod": _SCALE_IN_SECONDS,
            "advanced": {
                "horizontalPodAutoscalerConfig": {
                    "behavior": {"scaleDown": {"stabilizationWindowSeconds": _SCALE_IN_SECONDS}}
                }
            },
            "triggers": triggers,
        },
    }


def _queue_trigger(service: Service, queue: agent.Queue, place: ClusterPlace) -> Object:
    """Return what tells how many wait: with what is being worked on, or it would take the workers away."""
    assert service.queue is not None
    trigger = TRIGGERS[service.queue.kind](queue, str(place.cluster.queued_per_worker), place.region)
    return {**trigger, "authenticationRef": {"name": service.name}}


def _floors(scaling: Scaling, per: int) -> list[Object]:
    return [_floor(floor, per) for floor in scaling.floors]


def _floor(floor: ScalingFloor, per: int) -> Object:
    # cron counts from Sunday; it has no 24:00.
    days = ",".join(str((DAYS.index(day) + 1) % 7) for day in floor.days)
    begin, end = (_cron(time, days) for time in (floor.begin, floor.end))
    metadata = {"timezone": "UTC", "start": begin, "end": end, "desiredReplicas": str(floor.least * per)}
    return {"type": "cron", "metadata": metadata}


def _cron(time: str, days: str) -> str:
    hours, minutes = ("23", "59") if time == "24:00" else time.split(":")
    return f"{int(minutes)} {int(hours)} * * {days}"
