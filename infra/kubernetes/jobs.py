"""A training job: a Job, an Indexed Job for the experiments of a ``matrix``, a TrainJob for several nodes."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import Final

from contracts.agent import experiments
from contracts.agent.names import CODE_DIR, DATA_DIR, JOB_HOME, JOB_TMP, RUN_DIR
from infra.kubernetes import pod_resources, pods
from infra.kubernetes.place import ClusterPlace, Object
from infra.schema import Training
from userdata.agent.work.training import variables

SAVED_CODE: Final = 75
"""How ``supervise.sh`` says that the command was told to stop: it goes on elsewhere."""
FATAL_CODES: Final = (126, 127)
"""The command cannot be run, or is not there. Image and revision are pinned: another start finds the same. On
instances 127 is tried again, because the Python that was built there may be what is missing."""
SUPERVISE: Final = Path(__file__).with_name("supervise.sh").read_text("utf-8")
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_TABLE: Final = "/etc/gpu-spot/experiments"
_LOCAL: Final = CODE_DIR.parent
_CHECKOUT: Final = """set -eu
mkdir -p "$HOME" "$TMPDIR" "$GPU_SPOT_CODE"
cd "$GPU_SPOT_CODE"
git init --quiet .
git fetch --quiet --depth 1 "$GPU_SPOT_REPOSITORY" "$GPU_SPOT_REVISION"
git -c advice.detachedHead=false checkout --quiet --force FETCH_HEAD
"""
_SUBMODULES: Final = "git submodule --quiet update --init --recursive --depth 1\n"


def objects(job: Training, place: ClusterPlace) -> list[Object]:
    """Return an entry's own objects; those that it shares with others stand in ``storage`` and ``nodes``."""
    account: Object = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": place.metadata(job.name, job.name),
        # No credentials of AWS and none of the cluster: as on instances.
        "automountServiceAccountToken": False,
    }
    if job.nodes > 1:
        return [account, _runtime(job, place), _train_job(job, place)]
    if job.matrix is not None:
        return [account, _experiments(job, place), _job(job, place)]
    return [account, _job(job, place)]


def run_name(job: Training) -> str:
    """Return the name of a job's run: another revision, or other experiments, are another run."""
    run = experiments.run_of(job.revision, job.matrix) if job.matrix is not None else job.revision
    return f"{job.name}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"


def environment(job: Training, name: str = "") -> dict[str, str]:
    """Return the variables of a job's command; ``name`` is that of an experiment."""
    name = name or job.name
    checkpoints = DATA_DIR / "checkpoints" / name
    done = variables.done_file(checkpoints, job.revision)
    own = {**job.environment, **experiments.by_name(job.name, job.matrix or {}).get(name, {})}
    told = variables.of_job(name, own, DATA_DIR, RUN_DIR, checkpoints, checkpoints / ".artifacts", done)
    return {**told, "GPU_SPOT_GRACE_SECONDS": str(pods.GRACE_SECONDS)}


def command(job: Training) -> list[str]:
    """Return what the container runs: the job's command below ``supervise.sh``."""
    return ["/bin/sh", "-c", SUPERVISE, "gpu-spot", *job.command]


def _job(job: Training, place: ClusterPlace) -> Object:
    labels = {**place.labels(job.name), QUEUE_LABEL: place.namespace}
    metadata = {**place.metadata(run_name(job), job.name), "labels": labels}
    spec = {**_spec(job, place), "backoffLimit": job.max_restarts, "podFailurePolicy": _policy("FailJob")}
    if job.matrix is not None:
        count = len(list(experiments.combinations(job.matrix)))
        at_once = job.capacity.target if job.shares_group else count
        spec |= {
            "completionMode": "Indexed",
            "completions": count,
            "parallelism": at_once,
            # Each experiment fails by itself, as a job of its own would.
            "backoffLimitPerIndex": job.max_restarts,
            "maxFailedIndexes": count,
            "podFailurePolicy": _policy("FailIndex"),
        }
        del spec["backoffLimit"]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _policy(fatal: str) -> Object:
    """Return what counts as a failure. The first rule that fits counts, so a disruption never does."""
    codes = {"containerName": pods.CONTAINER, "operator": "In"}
    return {
        "rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "Ignore", "onExitCodes": {**codes, "values": [SAVED_CODE]}},
            {"action": fatal, "onExitCodes": {**codes, "values": [*FATAL_CODES]}},
        ]
    }


def _spec(job: Training, place: ClusterPlace) -> Object:
    # Break before make: the old pod has ended before its successor is there. A finished job stays: it is how
    # the cluster knows that this run has ended.
    return {"podReplacementPolicy": "Failed", "template": _pod(job, place)}


def _pod(job: Training, place: ClusterPlace) -> Object:
    code, wanted = str(CODE_DIR / job.name), pod_resources.of_job(job.capacity.types)
    user, group = place.users[job.checkpoints]
    volumes, mounts = pods.dataset_volumes(job, place)
    volumes += [
        {"name": "local", "emptyDir": {}},
        {"name": "run", **pods.memory(16)},
        {"name": "shm", **pods.memory(wanted.memory_mib // 2)},
        {"name": "checkpoints", "persistentVolumeClaim": {"claimName": job.checkpoints}},
    ]
    local = [{"name": "local", "mountPath": str(_LOCAL)}]
    mounts += [
        *local,
        {"name": "run", "mountPath": str(RUN_DIR)},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - in there
        {"name": "checkpoints", "mountPath": str(DATA_DIR / "checkpoints")},
    ]
    if job.matrix is not None:
        volumes.append({"name": "experiments", "configMap": {"name": run_name(job)}})
        mounts.append({"name": "experiments", "mountPath": _TABLE, "readOnly": True})
    fetched = {
        "HOME": str(JOB_HOME),
        "TMPDIR": str(JOB_TMP),
        "GPU_SPOT_CODE": code,
        "GPU_SPOT_REPOSITORY": job.repository,
        "GPU_SPOT_REVISION": job.revision,
    }
    checkout: Object = {
        "name": "checkout",
        "image": place.cluster.checkout_image or job.image,
        "command": pods.arguments(
            ["/bin/sh", "-c", _CHECKOUT + (_SUBMODULES if job.submodules else ""), "gpu-spot"]
        ),
        "env": pods.environment(fetched),
        "securityContext": pods.CONFINED,
        "volumeMounts": local,
    }
    work: Object = {
        "name": pods.CONTAINER,
        "image": job.image,
        "command": pods.arguments(command(job)),
        "workingDir": code,
        "env": pods.environment(environment(job)),
        "resources": wanted.resources,
        "securityContext": pods.CONFINED,
        "volumeMounts": mounts,
    }
    spec: Object = {
        "restartPolicy": "Never",  # a podFailurePolicy asks for it
        "terminationGracePeriodSeconds": pods.GRACE_SECONDS,
        "serviceAccountName": job.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # No fsGroup: the kubelet would change the group of every file of a dataset, at each start.
        "securityContext": {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": group},
        **pods.placement(job),
        "initContainers": [checkout],
        "containers": [work],
        "volumes": volumes,
    }
    return pods.template(place.labels(job.name), spec, annotations={"karpenter.sh/do-not-disrupt": "true"})


def _experiments(job: Training, place: ClusterPlace) -> Object:
    """Return the variables of each experiment, by its index, as ``supervise.sh`` reads them."""
    assert job.matrix is not None
    table, shared = {}, environment(job)
    for index, chosen in enumerate(experiments.combinations(job.matrix)):
        told = environment(job, experiments.name_of(job.name, chosen))
        own = {name: value for name, value in told.items() if shared.get(name) != value}
        table[str(index)] = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in own.items())
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": place.metadata(run_name(job), job.name),
        "immutable": True,
        "data": table,
    }


def _runtime(job: Training, place: ClusterPlace) -> Object:
    """Return how a run on several nodes is put together.

    Losing one node is the end of all ranks, so all start again: for a disruption for nothing, else counted.
    """
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    saved = {"containerName": "node", "operator": "In", "values": [SAVED_CODE]}
    pod = _pod(job, place)
    pod["spec"]["containers"][0]["name"] = "node"  # Trainer's name for it
    template: Object = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    {"action": "FailJob", "onPodConditions": disrupted},
                    {"action": "FailJob", "onExitCodes": saved},
                ]
            },
            "template": pod,
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": place.metadata(run_name(job), job.name),
        "spec": {
            "mlPolicy": {"numNodes": job.nodes, "torch": {}},
            "template": {
                "spec": {
                    "failurePolicy": {
                        "maxRestarts": job.max_restarts,
                        "rules": [
                            {
                                "name": "disrupted",
                                "action": "RestartJobSetAndIgnoreMaxRestarts",
                                "onJobFailureReasons": ["PodFailurePolicy"],
                            }
                        ],
                    },
                    "replicatedJobs": [{"name": "node", "replicas": 1, "template": template}],
                }
            },
        },
    }


def _train_job(job: Training, place: ClusterPlace) -> Object:
    labels = {**place.labels(job.name), QUEUE_LABEL: place.namespace}
    gpus = pod_resources.of_job(job.capacity.types).gpus
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {**place.metadata(run_name(job), job.name), "labels": labels},
        "spec": {
            "runtimeRef": {
                "apiGroup": "trainer.kubeflow.org",
                "kind": "TrainingRuntime",
                "name": run_name(job),
            },
            "trainer": {"numNodes": job.nodes, "numProcPerNode": gpus},
        },
    }
