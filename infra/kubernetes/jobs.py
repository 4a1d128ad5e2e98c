"""Manifests of training jobs: Indexed Jobs, and a TrainJob where several nodes need each other."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Final

from contracts.agent import experiments
from contracts.agent.names import CODE_DIR, DATA_DIR, JOB_HOME, JOB_TMP, RUN_DIR
from infra.kubernetes import pod_resources, pods, secrets
from infra.kubernetes.context import ClusterContext, Manifest, named_for
from infra.schema import Training
from userdata.agent.work.container import Container
from userdata.agent.work.training import variables

STOPPED_EXIT_CODE: Final = 75
"""Exit code of ``supervise.sh`` after SIGTERM: the job continues in another pod."""
EXHAUSTED_EXIT_CODE: Final = 78
"""Exit code of ``supervise.sh`` and ``checkout.sh`` for a failure beyond ``max_restarts``."""
FATAL_EXIT_CODES: Final = (126, 127)
"""The command cannot be executed or is not found. Image and revision are pinned, so a retry cannot help. On
instances 127 is retried: the Python environment that is built there may be missing."""
SUPERVISE: Final = Path(__file__).with_name("supervise.sh").read_text("utf-8")
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_INDEX: Final = "metadata.labels['batch.kubernetes.io/job-completion-index']"
_EXPERIMENTS_DIR: Final = "/etc/gpu-spot/experiments"
_LOCAL_DIR: Final = CODE_DIR.parent
_CHECKOUT: Final = Path(__file__).with_name("checkout.sh").read_text("utf-8")
_CHECKOUT_CONTAINER: Final = "checkout"
OUTAGE_SECONDS: Final = 900
"""How long a pod waits for a git host that does not answer, before it frees its node."""
LIVES: Final = 200
"""How many pods of a Job (``_job``) may end, for each of its nodes and for whatever reason, before it fails.
A pod that its node rejects runs no script that counts, and has no condition by which a rule could know it
(kubernetes, ``rejectPod``): an index would fail after ``max_restarts`` of them, and the next one begin."""
LEASE_SECONDS: Final = 120
"""Duration of the lease of a checkpoint folder (``supervise.sh``): that of a job's lease on instances."""


def job_manifests(job: Training, context: ClusterContext) -> list[Manifest]:
    """Return a job's own manifests; shared ones are in ``storage`` and ``nodes``.

    The Job has the entry's name whatever it runs: a cluster has no two objects of one kind and name, so the
    Jobs of two revisions never share a checkpoint folder at the same time.
    """
    account: Manifest = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": context.metadata(job.name, job.name),
        # No cluster credentials; those of AWS come by Pod Identity, with secrets or permissions.
        "automountServiceAccountToken": False,
    }
    common = [account, *secrets.secret_manifests(job, context)]
    if job.nodes.needs_all:
        return [*common, *_train_job(job, context)]
    table = [] if job.matrix is None else [_experiments(job, context)]
    return [*common, *table, _job(job, context)]


def run_name(job: Training) -> str:
    """Return the name of what belongs to a run; another revision or matrix is another run."""
    run = experiments.run_of(job.revision, job.matrix) if job.matrix is not None else job.revision
    return named_for(job.name, run)


def environment(job: Training, name: str = "") -> dict[str, str]:
    """Return the variables of a job's command, or of the experiment ``name``."""
    name = name or job.name
    checkpoints = DATA_DIR / "checkpoints" / name
    done = variables.done_file(checkpoints, job.revision)
    job_environment = {**job.environment, **experiments.by_name(job.name, job.matrix or {}).get(name, {})}
    artifacts = checkpoints / ".artifacts"
    job_variables = variables.fixed_variables(
        name, job.command, job_environment, DATA_DIR, RUN_DIR, checkpoints, artifacts, done
    )
    return {
        **job_variables,
        "GPU_SPOT_GRACE_SECONDS": str(pods.GRACE_SECONDS),
        "GPU_SPOT_LEASE_SECONDS": str(LEASE_SECONDS),
        **_nodes(job),
    }


def _nodes(job: Training) -> dict[str, str]:
    """Return the variables of several nodes: each has the lease of its rank, or they share their Job's."""
    if (limits := job.nodes.setting) is None:
        return {}
    if job.nodes.needs_all:
        return {"GPU_SPOT_NODES": str(limits.max)}
    return {"GPU_SPOT_NODES": str(limits), variables.NODES_VARIABLE: str(limits)}


def command(job: Training) -> list[str]:
    """Return the container's command: ``supervise.sh`` running the job's command."""
    return ["/bin/sh", "-c", SUPERVISE, "gpu-spot", *job.command]


def _job(job: Training, context: ClusterContext) -> Manifest:
    """Return an Indexed Job, which is done once one index has succeeded; of a ``matrix`` all have to.

    An index is a life of a node: an interruption fails it, and the next one begins at once. The controller
    would wait before it replaces the pod of the same index, twice as long after each end up to ten minutes,
    counted or not. So it does after failures, which count: the pod after ``max_restarts`` of them fails the
    Job. Several nodes are several lives at a time, and the pods of the others stay (docs/adr/0087).
    Sources: Kubernetes, "Jobs" (``backoffLimitPerIndex``, ``successPolicy``); ``pkg/controller/job``.
    """
    labels = {**context.labels(job.name), QUEUE_LABEL: context.namespace}
    metadata = {**context.metadata(job.name, job.name), "labels": labels}
    spec = {**_spec(job, context), "completionMode": "Indexed"}
    if job.matrix is None:
        spec |= {
            "completions": LIVES * job.nodes.max,
            "backoffLimit": LIVES * job.nodes.max,
            "parallelism": job.nodes.max,
            "backoffLimitPerIndex": job.max_restarts + 1,
            "successPolicy": {"rules": [{"succeededCount": 1}]},
            "podFailurePolicy": _policy("FailIndex", "FailJob"),
        }
    else:
        count = len(list(experiments.combinations(job.matrix)))
        spec |= {
            "completions": count,
            "parallelism": job.capacity.target if job.shares_group else count,
            # Each experiment fails independently, like a separate job.
            "backoffLimitPerIndex": job.max_restarts,
            "maxFailedIndexes": count,
            "podFailurePolicy": _policy("Ignore", "FailIndex"),
        }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _policy(interrupted: str, fatal: str) -> Manifest:
    """Return what ends mean. The first matching rule applies: disruptions never count."""
    codes = {"containerName": pods.CONTAINER, "operator": "In"}
    final = {"containerName": _CHECKOUT_CONTAINER, "operator": "In", "values": [EXHAUSTED_EXIT_CODE]}
    return {
        "rules": [
            {"action": interrupted, "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": interrupted, "onExitCodes": {**codes, "values": [STOPPED_EXIT_CODE]}},
            {"action": interrupted, "onExitCodes": _outage()},
            {"action": fatal, "onExitCodes": {**codes, "values": [EXHAUSTED_EXIT_CODE, *FATAL_EXIT_CODES]}},
            {"action": fatal, "onExitCodes": final},
        ]
    }


def _outage() -> Manifest:
    """Return the end of a pod whose git host did not answer."""
    return {"containerName": _CHECKOUT_CONTAINER, "operator": "In", "values": [STOPPED_EXIT_CODE]}


def _spec(job: Training, context: ClusterContext) -> Manifest:
    # A pod is replaced only after it has terminated. A finished Job is kept: it records the finished run.
    return {"podReplacementPolicy": "Failed", "template": _pod(job, context)}


def _pod(job: Training, context: ClusterContext) -> Manifest:
    code, requests = str(CODE_DIR / job.name), pod_resources.job_requests(job.capacity.types)
    user, group = context.users[job.checkpoints]  # a pod has no volume: the schema requires an access point
    volumes, mounts = pods.dataset_volumes(job, context)
    volumes += [
        {"name": "local", "emptyDir": {}},
        {"name": "run", **pods.memory_volume(16)},
        {"name": "shm", **pods.memory_volume(pod_container(job, user, group).shared_memory // 2**20)},
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": job.checkpoints}},
    ]
    local = [{"name": "local", "mountPath": str(_LOCAL_DIR)}]
    mounts += [
        *local,
        {"name": "run", "mountPath": str(RUN_DIR)},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - in the container
        {"name": "checkpoints", "mountPath": str(DATA_DIR / "checkpoints")},
    ]
    if job.matrix is not None:
        volumes.append({"name": "experiments", "configMap": {"name": run_name(job)}})
        mounts.append({"name": "experiments", "mountPath": _EXPERIMENTS_DIR, "readOnly": True})
    secret_variables, secret_volumes, secret_mounts = secrets.secret_variables(job)
    volumes, mounts = [*volumes, *secret_volumes], [*mounts, *secret_mounts]
    lives = [] if job.matrix is not None or job.nodes.needs_all else _lives(job)
    checkout_environment = {
        "HOME": str(JOB_HOME),
        "TMPDIR": str(JOB_TMP),
        "GPU_SPOT_CODE": code,
        "GPU_SPOT_REPOSITORY": job.repository,
        "GPU_SPOT_REVISION": job.revision,
        "GPU_SPOT_SUBMODULES": "yes" if job.submodules else "",
        "GPU_SPOT_OUTAGE_SECONDS": str(OUTAGE_SECONDS),
    }
    checkout: Manifest = {
        "name": _CHECKOUT_CONTAINER,
        "image": context.cluster.checkout_image or job.image,
        "command": pods.arguments(["/bin/sh", "-c", _CHECKOUT, "gpu-spot"]),
        "env": [*pods.environment(checkout_environment), *lives],
        "securityContext": pods.CONTAINER_SECURITY_CONTEXT,
        "volumeMounts": local,
    }
    work: Manifest = {
        "name": pods.CONTAINER,
        "image": job.image,
        "command": pods.arguments(command(job)),
        "workingDir": code,
        "env": [*pods.environment(environment(job)), *secret_variables, *lives],
        "resources": requests.resources,
        "securityContext": pods.CONTAINER_SECURITY_CONTEXT,
        "volumeMounts": mounts,
    }
    spec: Manifest = {
        "restartPolicy": "Never",  # required by a podFailurePolicy
        "terminationGracePeriodSeconds": pods.GRACE_SECONDS,
        "serviceAccountName": job.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # No fsGroup: the kubelet would change the group of every file of a dataset at each start.
        "securityContext": {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": group},
        **pods.placement(job, context),
        "initContainers": [checkout],
        "containers": [work],
        "volumes": volumes,
    }
    # Without karpenter.sh/do-not-disrupt: Karpenter would delete the pod instead of evicting it, later and
    # without the condition DisruptionTarget. Nothing else moves a job (nodes.node_pool).
    return pods.pod_template(job, spec, context)


def pod_container(job: Training, user: int, group: int) -> Container:
    """Return what the container of a job's pod gets."""
    return pod_resources.container(
        pod_resources.job_requests(job.capacity.types),
        job.shm_gib,
        writable=tuple((path, path) for path in (_LOCAL_DIR, RUN_DIR, DATA_DIR / "checkpoints")),
        user=f"{user}:{group}",
        has_role=job.uses_aws or bool(job.secrets),
    )


def _lives(job: Training) -> list[Manifest]:
    """Return variables with which a pod knows its Job, and how many failures of its index were counted.

    One of several nodes has the name of its index: a pod after a failure ends the world of the one before.
    """
    return [
        {"name": "GPU_SPOT_MAX_RESTARTS", "value": str(job.max_restarts)},
        _of_pod("GPU_SPOT_RUN", "metadata.labels['batch.kubernetes.io/controller-uid']"),
        _of_pod("GPU_SPOT_FAULTS", "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"),
        *([_of_pod(variables.NODE_VARIABLE, _INDEX)] if job.nodes.max > 1 else []),
    ]


def _of_pod(name: str, path: str) -> Manifest:
    """Return a variable of the downward API."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _experiments(job: Training, context: ClusterContext) -> Manifest:
    """Return a ConfigMap with the variables of each experiment by index, which ``supervise.sh`` reads."""
    assert job.matrix is not None
    table, shared = {}, environment(job)
    for index, chosen in enumerate(experiments.combinations(job.matrix)):
        experiment_environment = environment(job, experiments.name_of(job.name, chosen))
        differences = {
            name: value for name, value in experiment_environment.items() if shared.get(name) != value
        }
        table[str(index)] = "".join(
            f"export {name}={shlex.quote(value)}\n" for name, value in differences.items()
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": context.metadata(run_name(job), job.name),
        "immutable": True,
        "data": table,
    }


def _runtime(job: Training, context: ClusterContext) -> Manifest:
    """Return the spec of the TrainingRuntime of a run on several nodes.

    The loss of one node ends all ranks, so all restart; a restart after a disruption does not count. The
    others crash while the lost node's pod still saves: they may all fail without ending the run's Job, whose
    reason decides what the restart counts. If all fail, no node was lost.
    """
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    saved = {"containerName": "node", "operator": "In", "values": [STOPPED_EXIT_CODE]}
    pod = _pod(job, context)
    pod["spec"]["containers"][0]["name"] = "node"  # the name that Trainer expects
    template: Manifest = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {
            "backoffLimit": job.nodes.max - 1,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onPodConditions": disrupted},
                    {"action": "FailJob", "onExitCodes": saved},
                    {"action": "FailJob", "onExitCodes": _outage()},
                ]
            },
            "template": pod,
        },
    }
    rule = {
        "name": "disrupted",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    job_set = {
        "failurePolicy": {"maxRestarts": job.max_restarts, "rules": [rule]},
        "replicatedJobs": [{"name": "node", "replicas": 1, "template": template}],
    }
    return {"mlPolicy": {"numNodes": job.nodes.max, "torch": {}}, "template": {"spec": job_set}}


def _train_job(job: Training, context: ClusterContext) -> list[Manifest]:
    """Return the TrainingRuntime and the TrainJob of a run on several nodes.

    Trainer reads a runtime once: it updates no JobSet that runs (trainer, ``jobset.go``, ``Build``). So a
    runtime with another spec has another name, and another TrainJob refers to it. Volumes' sizes are not in
    the name: AWS gives them after the objects have their names.
    """
    labels = {**context.labels(job.name), QUEUE_LABEL: context.namespace}
    gpus = pod_resources.job_requests(job.capacity.types).gpus
    without_sizes = replace(context, snapshot_gib=dict.fromkeys(context.snapshot_gib, 0))
    name = named_for(job.name, json.dumps(_runtime(job, without_sizes)))
    group, kind = "trainer.kubeflow.org", "TrainingRuntime"
    return [
        {
            "apiVersion": f"{group}/v1alpha1",
            "kind": kind,
            "metadata": context.metadata(name, job.name),
            "spec": _runtime(job, context),
        },
        {
            "apiVersion": f"{group}/v1alpha1",
            "kind": "TrainJob",
            "metadata": {**context.metadata(job.name, job.name), "labels": labels},
            "spec": {
                "runtimeRef": {"apiGroup": group, "kind": kind, "name": name},
                "trainer": {"numNodes": job.nodes.max, "numProcPerNode": gpus},
            },
        },
    ]
