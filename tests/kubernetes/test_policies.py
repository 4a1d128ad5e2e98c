"""What an interruption, a failure and the notice mean: asserted on the rendered policies."""

from __future__ import annotations

from typing import Any

import pytest
from moto.ec2.models.instance_types import INSTANCE_TYPES

from contracts.limits import DrainSeconds
from infra.catalogue import host_shapes
from infra.catalogue.accelerators import CATALOGUE
from infra.catalogue.instance_sizes import INSTANCE_SIZES, InstanceSize
from infra.kubernetes import pod_resources, pods
from infra.kubernetes.jobs import FATAL_CODES, SAVED_CODE
from infra.kubernetes.place import Object
from tests.kubernetes.entries import JOB, one, rendered, variants
from tests.kubernetes.verdicts import verdict


@pytest.mark.parametrize(
    ("disrupted", "code", "says"),
    [
        (True, SAVED_CODE, "Ignore"),
        (True, 137, "Ignore"),
        (True, 127, "Ignore"),  # a container whose image never came on a node that went
        (False, SAVED_CODE, "Ignore"),
        (False, 1, "counted"),
        (False, 137, "counted"),  # killed for memory
        (False, 139, "counted"),
        (False, 126, "FailJob"),
        (False, 127, "FailJob"),
        (False, 0, "done"),
    ],
)
def test_a_disruption_is_no_failure_and_a_fatal_code_ends_it(disrupted: bool, code: int, says: str) -> None:
    assert verdict(one(variants()["both"], "Job"), disrupted=disrupted, code=code) == says


def test_an_experiment_that_fails_fails_alone() -> None:
    job = one(variants()["matrix"], "Job")
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (5, 4)
    assert "backoffLimit" not in spec  # with one per index the sum would end the others
    assert verdict(job, code=FATAL_CODES[0]) == "FailIndex"


def test_experiments_that_share_capacity_take_turns() -> None:
    spec = one(variants()["shared matrix"], "Job")["spec"]
    assert (spec["completions"], spec["parallelism"]) == (25, 3)


def test_the_rules_that_the_api_server_checks_beyond_the_schema() -> None:
    """batch/v1's validation: what a policy asks of its pod, what an index asks of its Job."""
    for name, found in variants().items():
        for job in (each for each in found if each["kind"] == "Job"):
            spec = job["spec"]
            pod, policy = spec["template"]["spec"], spec["podFailurePolicy"]
            assert pod["restartPolicy"] == "Never", name
            names = {each["name"] for each in pod["containers"]}
            for rule in policy["rules"]:
                codes = rule.get("onExitCodes")
                assert (codes is None) != ("onPodConditions" not in rule), name
                if codes:
                    assert codes["containerName"] in names
                    assert codes["values"] == sorted({*codes["values"]} - {0})
                if rule["action"] == "FailIndex":
                    assert "backoffLimitPerIndex" in spec
            assert spec.get("parallelism", 1) <= spec.get("completions", 1)


def test_a_revision_and_its_experiments_name_the_run() -> None:
    names = [
        one(rendered(job=changes), "Job")["metadata"]["name"]
        for changes in (
            {},
            {"maxRestarts": 7},
            {"revision": "f" * 40},
            {"matrix": {"SEED": [1, 2]}},
            {"matrix": {"SEED": [2, 1]}},
            {"matrix": {"SEED": [1, 3]}},
        )
    ]
    assert names[0] == names[1]
    assert names[3] == names[4]
    assert len({*names}) == 4


def test_a_run_on_several_nodes_begins_anew_for_a_disruption_and_uncounted() -> None:
    runtime = one(variants()["nodes"], "TrainingRuntime")["spec"]
    jobs = runtime["template"]["spec"]
    [node] = jobs["replicatedJobs"]
    policy = node["template"]["spec"]["podFailurePolicy"]["rules"]
    assert {rule["action"] for rule in policy} == {"FailJob"}
    [rule] = jobs["failurePolicy"]["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert node["template"]["spec"]["backoffLimit"] == 0
    assert len(node["name"]) <= 20  # Trainer 2.4
    assert one(variants()["nodes"], "TrainJob")["spec"]["trainer"] == {"numNodes": 2, "numProcPerNode": 4}


def test_the_notice_is_used_to_its_end() -> None:
    for found in variants().values():
        for pool in (each for each in found if each["kind"] == "NodePool"):
            assert pool["spec"]["template"]["spec"]["terminationGracePeriod"] == "120s"
    assert pods.GRACE_SECONDS <= pods.NODE_GRACE_SECONDS - 10
    [within] = [each for each in DrainSeconds.__metadata__ if hasattr(each, "most")]  # type: ignore[attr-defined]
    assert within.most <= pods.GRACE_SECONDS


def test_a_job_is_moved_by_nobody_but_aws() -> None:
    found = variants()["both"]
    [job, service] = sorted(
        (each for each in found if each["kind"] == "NodePool"),
        key=lambda each: "ocr" in each["metadata"]["name"],
    )
    blocked = job["spec"]["disruption"]["budgets"][0]
    assert job["spec"]["disruption"]["consolidationPolicy"] == "WhenEmpty"
    assert (blocked["nodes"], {*blocked["reasons"]}) == ("0", {"Drifted", "Underutilized"})
    assert job["spec"]["template"]["spec"]["expireAfter"] == "Never"
    template = one(found, "Job")["spec"]["template"]
    assert template["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}
    assert service["spec"]["disruption"]["budgets"] == [{"nodes": "1"}]


@pytest.mark.parametrize(
    ("variant", "kinds"),
    [
        ("both", ["spot", "on-demand"]),
        ("spot alone", ["spot"]),
    ],
)
def test_on_demand_is_bought_where_a_fallback_may(variant: str, kinds: list[str]) -> None:
    [pool] = [
        each
        for each in variants()[variant]
        if each["kind"] == "NodePool" and "resnet" in each["metadata"]["name"]
    ]
    [wanted] = [
        each["values"]
        for each in pool["spec"]["template"]["spec"]["requirements"]
        if each["key"] == "karpenter.sh/capacity-type"
    ]
    assert wanted == kinds


def test_no_pod_reaches_its_nodes_role() -> None:
    for found in variants().values():
        for each in found:
            if each["kind"] == "EC2NodeClass":
                options = each["spec"]["metadataOptions"]
                assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)
            for pod in pods_of(each):
                assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
                assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
                for container in (*pod["containers"], *pod.get("initContainers", ())):
                    context = container["securityContext"]
                    assert context["capabilities"] == {"drop": ["ALL"]}
                    assert context["allowPrivilegeEscalation"] is False


def pods_of(told: Object) -> list[Object]:
    spec: Any = told.get("spec", {})
    if told["kind"] == "TrainingRuntime":
        spec = spec["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    template = spec.get("template", {})
    return [template["spec"]] if "containers" in template.get("spec", {}) else []


def test_requests_are_the_types_less_the_reserve() -> None:
    # amazon-eks-ami: 4 processors reserve 60 + 10 + 5 + 5; 255 MiB + 11 for each of 110 pods.
    assert pod_resources.allocatable(InstanceSize(4, 16)) == (3920 - 500, 15155 - 255 - 1210 - 100 - 1024)
    asked = pod_resources.of_job(["g6.xlarge", "g6e.xlarge"])
    assert (asked.gpus, asked.memory_mib) == (1, pod_resources.allocatable(InstanceSize(4, 16))[1])
    share = pod_resources.of_worker(["g6.12xlarge"])
    whole = pod_resources.of_job(["g6.12xlarge"])
    assert (share.gpus, whole.gpus) == (1, 4)
    assert 4 * share.memory_mib <= whole.memory_mib
    assert 4 * share.millicpu <= whole.millicpu


def test_every_type_that_may_run_there_has_a_size_and_room() -> None:
    wanted = {
        name
        for name, known in CATALOGUE.items()
        if known.family.vendor == "nvidia" and known.family.needs_ami is None
    }
    assert {*INSTANCE_SIZES} == wanted | {*host_shapes.TYPES}
    for name in wanted & INSTANCE_TYPES.keys():
        told = INSTANCE_TYPES[name]
        size = told["VCpuInfo"]["DefaultVCpus"], told["MemoryInfo"]["SizeInMiB"] / 1024
        assert size == (INSTANCE_SIZES[name].vcpus, INSTANCE_SIZES[name].memory_gib), name
    assert all(min(pod_resources.allocatable(size)) > 2000 for size in INSTANCE_SIZES.values())


def test_the_quota_lets_a_whole_job_in() -> None:
    for name, found in variants().items():
        [group] = one(found, "ClusterQueue")["spec"]["resourceGroups"]
        [flavor] = group["flavors"]
        quota = {each["name"]: each["nominalQuota"] for each in flavor["resources"]}
        assert quota["nvidia.com/gpu"] == 64
        for each in found:
            for pod in pods_of(each) if each["kind"] == "Job" else ():
                asked = pod["containers"][0]["resources"]["requests"]
                assert asked.keys() == quota.keys(), name
                assert int(asked["memory"][:-2]) <= int(quota["memory"][:-2])
    assert JOB["capacity"]["target"] == 1
