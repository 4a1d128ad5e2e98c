"""The instance metadata service and the image, as an instance sees them."""

from __future__ import annotations

from typing import Any, Final

from gpu_spot.aws_check import probe
from gpu_spot.aws_check.assumption import BilledResource, assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from gpu_spot.aws_check.probe import ProbeStep
from infra.catalogue.accelerators import ami_parameter
from userdata.agent.aws import imds

_IMDS: Final = "userdata/agent/aws/imds.py"
_GPU_TYPE: Final = "g4dn.xlarge"


def _below_latest(path: str) -> str:
    return path.removeprefix("/latest/")


@assumes(
    'EC2 user guide, "Use the Instance Metadata Service to access instance metadata"',
    "infra/components/capacity/launch_options.py",
    "metadata are returned without a token",
    instances=1,
)
def no_metadata_without_token(test_bed: AwsTestBed) -> str:
    """With HttpTokens required the metadata service returns status 401 to a request without a token."""
    step = ProbeStep("without", path=_below_latest(imds.PRIVATE_ADDRESS), with_token=False)
    result = probe.run(test_bed, "token", [], [step])["without"]
    if result != "401":
        raise Falsified(f"the answer is {result}")
    return "status 401"


@assumes(
    'EC2 user guide, "Spot Instance interruption notices"',
    _IMDS,
    "another status",
    instances=1,
)
def no_notice_is_404(test_bed: AwsTestBed) -> str:
    """Without a notice spot/instance-action and the rebalance recommendation are not found."""
    paths = (imds.SPOT_ACTION, imds.REBALANCE)
    steps = [ProbeStep(path, path=_below_latest(path)) for path in paths]
    results = probe.run(test_bed, "notice", [], steps)
    if set(results.values()) != {"404"}:
        raise Falsified(f"answers are {results}")
    return "status 404"


@assumes(
    'EC2 user guide, "Instance metadata categories"',
    _IMDS,
    "another text",
    instances=1,
)
def purchase_option_in_metadata(test_bed: AwsTestBed) -> str:
    """instance-life-cycle is `spot` for a Spot Instance."""
    step = ProbeStep("option", path=_below_latest(imds.PURCHASE_OPTION))
    market = {"MarketType": "spot"}
    result = probe.run(test_bed, "option", [], [step], InstanceMarketOptions=market)["option"]
    if result != "spot":
        raise Falsified(f"it is {result!r}")
    return result


@assumes(
    'EC2 user guide, "View tags for your EC2 instances using instance metadata"; Auto Scaling guide, '
    '"Retrieve the target lifecycle state through instance metadata"',
    _IMDS,
    "one of the two is not found",
    instances=1,
    unsupported_reason="moto's groups launch instances without user data",
)
def group_in_metadata(test_bed: AwsTestBed) -> str:
    """An instance of a group reads its group's name from its tags and its target state from metadata."""
    ssm, suffix = test_bed.clients("ssm"), "member"
    parameter = f"/gpu-spot-check/{test_bed.run}/{suffix}"
    steps = [ProbeStep(path, path=_below_latest(path)) for path in (imds.GROUP_TAG, imds.LIFECYCLE_STATE)]
    profile = probe.reporting_profile(test_bed, suffix, [], parameter)
    options: dict[str, Any] = {"HttpTokens": "required", "InstanceMetadataTags": "enabled"}
    template = test_bed.template(
        suffix,
        UserData=probe.encoded_user_data(steps, parameter),
        IamInstanceProfile={"Name": profile},
        MetadataOptions=options,
    )
    group = test_bed.group(suffix, template)
    test_bed.scale_to(group, 1)
    results = test_bed.wait_until(lambda: probe.results(ssm, parameter), "the results of the instance", 600)
    if results[imds.GROUP_TAG] != group or not results[imds.LIFECYCLE_STATE].startswith("InService"):
        raise Falsified(f"answers are {results}")
    return "the group's name, and InService"


@assumes(
    'AWS Deep Learning AMI guide, release notes of the "Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04)"',
    "infra/catalogue/accelerators.py",
    "a program is missing, or the driver lists no GPU",
    resources=(BilledResource("GPU instance", {_GPU_TYPE: 0.5}),),
    dollars=5,
    by_name_only=True,
    unsupported_reason="no command runs on a simulated instance",
)
def gpu_image(test_bed: AwsTestBed) -> str:
    """On a g4dn.xlarge the default image has a driver that lists the GPU, Docker, nvidia-ctk and python3."""
    image = test_bed.clients("ssm").get_parameter(Name=ami_parameter("x86_64"))["Parameter"]["Value"]
    commands = {
        "driver": ("nvidia-smi", "--list-gpus"),
        "docker": ("docker", "--version"),
        "toolkit": ("nvidia-ctk", "--version"),
        "python": ("python3", "--version"),
    }
    steps = [ProbeStep(name, command=command) for name, command in commands.items()]
    results = probe.run(test_bed, "gpu", [], steps, ImageId=image, InstanceType=_GPU_TYPE)
    wrong = {name: text for name, text in results.items() if text[:1].isdigit() or not text}
    if wrong or not results["driver"].startswith("GPU 0"):
        raise Falsified(f"{wrong or results['driver']}")
    return "; ".join(results.values())[:300]
