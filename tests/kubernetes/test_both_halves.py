"""An entry on instances and on Kubernetes: image, command, paths, queue and identity are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from contracts import names
from contracts.agent import config as agent
from contracts.agent.names import CODE_DIR, DATA_DIR, RUN_DIR
from infra.components.monitoring.alarm_spec import group_dimensions
from infra.kubernetes import render
from infra.kubernetes.context import Manifest
from infra.program import agent_config
from infra.program.agent_config import InstanceContext
from infra.program.entries.service import agent_config as of_service
from infra.program.entries.service.kind import needs_of
from infra.program.entries.training import agent_config as of_training
from infra.program.entries.training.agent_config import JobOutputs
from infra.schema import Service, Settings, Training
from tests.kubernetes import entries
from tests.kubernetes.entries import of_kind
from userdata.agent.work.container import worker_variables
from userdata.agent.work.service import queue as queue_environment
from userdata.agent.work.service import slots
from userdata.agent.work.training import variables

URL: Final = "amqps://user:password@broker"
INSTANCE_CONTEXT: Final = InstanceContext("us-west-2", "dev", "primary", None, "/logs")


def both(entry: str, **changes: Any) -> tuple[Service | Training, agent.Config, list[Manifest]]:
    """Return the entry, its agent configuration on instances, and its manifests on Kubernetes."""
    instance_settings = entries.settings(**{entry: {**changes, "runsOn": "instances"}})
    cluster_settings = entries.settings(**{entry: changes})
    on_instances, on_cluster = (
        (settings.training if entry == "job" else settings.services)[0]
        for settings in (instance_settings, cluster_settings)
    )
    assert on_instances.model_dump(exclude={"runs_on"}) == on_cluster.model_dump(exclude={"runs_on"})
    context = entries.context(cluster_settings)
    if isinstance(on_instances, Service):
        work = of_service.work(on_instances, context.queues.get("ocr"))
    else:
        outputs = JobOutputs(
            "jobs", file_system="fs-0123456789abcdef0", access_point="fsap-0123456789abcdef0"
        )
        work = of_training.work(on_instances, INSTANCE_CONTEXT.stack, INSTANCE_CONTEXT.region, outputs)
    entry_settings = cluster_settings.model_copy(update={"services" if entry == "job" else "training": ()})
    return (
        on_cluster,
        agent_config.build(on_instances, INSTANCE_CONTEXT, "registry", work),
        render.manifests(entry_settings, context),
    )


def container(items: list[Manifest], kind: str) -> Manifest:
    [result] = of_kind(items, kind)["spec"]["template"]["spec"]["containers"]
    return result  # type: ignore[no-any-return]


def expanded(arguments: list[str]) -> list[str]:
    """Return arguments as the kubelet passes them: ``$$`` is one ``$``."""
    return [item.replace("$$", "$") for item in arguments]


def variables_of(container: Manifest) -> dict[str, str]:
    return {item["name"]: item["value"].replace("$$", "$") for item in container["env"] if "value" in item}


def test_a_job_has_its_image_command_directory_and_variables() -> None:
    _, config, items = both("job")
    pod, job = container(items, "Job"), config.training
    assert pod["image"] == job.image
    assert expanded(pod["command"])[4:] == list(job.command)
    assert pod["workingDir"] == str(CODE_DIR / config.group)
    checkpoints = DATA_DIR / "checkpoints" / job.job
    done = variables.done_file(checkpoints, job.revision)
    artifacts = checkpoints / ".artifacts"
    expected = variables.fixed_variables(
        job.job, job.command, job.environment, DATA_DIR, RUN_DIR, checkpoints, artifacts, done
    )
    of_pods = {"GPU_SPOT_GRACE_SECONDS": "110", "GPU_SPOT_LEASE_SECONDS": "120", "GPU_SPOT_MAX_RESTARTS": "5"}
    assert variables_of(pod) == {**expected, **of_pods}


def test_a_job_has_the_same_volumes_at_the_same_paths() -> None:
    _, config, items = both("job")
    mounts = {item["name"]: item for item in container(items, "Job")["volumeMounts"]}
    [efs], [dataset] = config.efs, config.datasets
    assert mounts["checkpoints"]["mountPath"] == efs.path
    handle = of_kind(items, "PersistentVolume")["spec"]["csi"]["volumeHandle"]
    assert handle == f"{efs.file_system}::{efs.access_point}"
    assert (mounts["dataset-0"]["mountPath"], mounts["dataset-0"]["readOnly"]) == (dataset.path, True)
    content = of_kind(items, "VolumeSnapshotContent")["spec"]
    assert (content["source"], content["deletionPolicy"]) == ({"snapshotHandle": dataset.snapshot}, "Retain")


def test_an_experiment_has_its_own_variables() -> None:
    matrix = {"LR": ["0.1", "it's $HOME"], "SEED": ["1", "2"]}
    on_cluster = entries.settings(job={"environment": {}, "matrix": matrix})
    on_instances = entries.settings(job={"environment": {}, "matrix": matrix, "runsOn": "instances"})
    table = of_kind(render.manifests(on_cluster, entries.context(on_cluster)), "ConfigMap")["data"]
    assert len(table) == len(on_instances.jobs) == 4
    for job in on_instances.jobs:
        [text] = [item for item in table.values() if f"GPU_SPOT_JOB={job.name}\n" in item]
        assert f"GPU_SPOT_CHECKPOINTS={DATA_DIR}/checkpoints/{job.name}\n" in text
        assert text.count("export ") == 4 + len(matrix)


def test_a_job_has_no_aws_identity() -> None:
    _, _, items = both("job")
    spec = of_kind(items, "Job")["spec"]["template"]["spec"]
    assert of_kind(items, "ServiceAccount")["automountServiceAccountToken"] is False
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "resnet"
    assert spec["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000}


@pytest.mark.parametrize("kind", ["rabbitmq", "sqs"])
def test_a_worker_has_its_image_arguments_queue_and_variables(kind: str) -> None:
    queue = {"kind": "sqs"} if kind == "sqs" else entries.RABBITMQ
    entry, config, items = both("service", queue=queue)
    pod, service = container(items, "Deployment"), config.service
    assert pod["image"] == service.image
    assert expanded(pod["args"]) == list(service.command)
    assert "command" not in pod  # the image's own entry point, as on instances
    expected = worker_variables(has_read_only_root=True)
    expected |= {**slots.environment(slots.Slot(0, 0), RUN_DIR), **service.environment}
    expected |= queue_environment.environment(service.queue, URL)
    if kind == "rabbitmq":
        del expected["SPOT_WORK_URL"]
        [secret] = [item for item in pod["env"] if "secretKeyRef" in item.get("valueFrom", ())]
        provider = of_kind(items, "SecretProviderClass")["spec"]
        assert secret["name"] == "SPOT_WORK_URL"
        name = provider["secretObjects"][0]["secretName"]
        assert secret["valueFrom"]["secretKeyRef"] == {"name": name, "key": "url", "optional": True}
        # Without it no container starts; the variable may be without it, for KEDA.
        spec = of_kind(items, "Deployment")["spec"]["template"]["spec"]
        [volume] = [one for one in spec["volumes"] if one.get("secret", {}).get("secretName") == name]
        assert "optional" not in volume["secret"]
        assert volume["name"] in {mount["name"] for mount in pod["volumeMounts"]}
        assert f'objectName: "{service.queue.secret}"' in provider["parameters"]["objects"]
    assert variables_of(pod) == expected
    assert needs_of(entry) >= {"queue" if kind == "rabbitmq" else "sqs"}


@pytest.mark.parametrize("kind", ["rabbitmq", "sqs"])
def test_keda_scales_workers_by_the_queue_watchers_number(kind: str) -> None:
    """KEDA's AMQP scaler counts ready messages only, so workers in work would be scaled away."""
    _, _, items = both("service", queue={"kind": "sqs"} if kind == "sqs" else entries.RABBITMQ)
    spec = of_kind(items, "ScaledObject")["spec"]
    trigger = spec["triggers"][0]
    metadata = trigger["metadata"]
    dimensions = dict(
        zip(metadata["dimensionName"].split(";"), metadata["dimensionValue"].split(";"), strict=True)
    )
    assert dimensions == group_dimensions("dev", "ocr", names.SERVICE_QUEUES)
    assert (trigger["type"], metadata["metricName"]) == ("aws-cloudwatch", "QueueWorkers")
    # A missing value is an error, and from the first on the number of workers stays.
    assert (metadata["targetMetricValue"], metadata["ignoreNullValues"]) == ("1", "false")
    assert (spec["fallback"]["failureThreshold"], trigger.get("metricType")) == (0, None)  # not for ``Value``
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 7)
    assert "replicas" not in of_kind(items, "Deployment")["spec"]  # each update would reset it
    assert spec["triggers"][1]["metadata"] == {
        "timezone": "UTC",
        "start": "0 8 * * 1,0",
        "end": "59 23 * * 1,0",
        "desiredReplicas": "2",
    }


def test_a_service_that_does_not_scale_has_its_target() -> None:
    _, _, items = both("service", scaling={**entries.SERVICE["scaling"], "dryRun": True})
    assert of_kind(items, "Deployment")["spec"]["replicas"] == 4
    assert not [item for item in items if item["kind"] == "ScaledObject"]


def test_entries_are_divided_between_instances_and_kubernetes() -> None:
    settings: Settings = entries.settings(service={"runsOn": "instances"})
    assert ([*settings.on_instances.capacities], [*settings.on_kubernetes.capacities]) == (
        ["ocr"],
        ["resnet"],
    )
    assert Path(settings.on_kubernetes.training[0].command[0]).name == "python"
