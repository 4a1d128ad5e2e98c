"""The components. Each declares the resources of a stack file with the same keys, as its children."""

# No postponed annotations: the SDK derives the package's schema from them and cannot read strings.

from collections.abc import Mapping
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.package import inputs
from infra.program import stack
from infra.scope import build_scope
from infra.settings import SettingsError

PACKAGE: Final = "gpu-spot"


class StackComponent(pulumi.ComponentResource):
    """Base of all components, with their common outputs."""

    stack_name: pulumi.Output[str]
    """The name that replaces a stack's name in names, tags and parameters."""
    vpc_id: pulumi.Output[str]
    """ID of the VPC."""
    private_subnet_ids: pulumi.Output[list[str]]
    """IDs of the subnets of the instances."""
    alarm_topic: pulumi.Output[str]
    """ARN of the SNS topic of the alarms."""
    dashboard: pulumi.Output[str]
    """Name of the CloudWatch dashboard."""
    controller_function: pulumi.Output[str]
    """Name of the controller's Lambda function."""
    follow_decisions: pulumi.Output[str]
    """A command that follows the controller's decisions and their reasons."""
    outputs: pulumi.Output[dict[str, Any]]
    """All outputs of a gpu-spot stack, under the same names."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None, entries: str = ""
    ) -> None:
        """Declare the resources of an entry of the list ``entries``, or of a whole stack file."""
        super().__init__(f"{PACKAGE}:index:{type(self).__name__}", name, None, opts)
        outputs: dict[str, Any] = {}
        try:
            values = inputs.to_plain(args)
            if entries and values.setdefault("name", name) != name:
                raise SettingsError(
                    f"name is {values['name']!r}; remove it, because the component names its group"
                )
            stack_name = values.pop(inputs.STACK_NAME, f"{pulumi.get_project()}-{pulumi.get_stack()}-{name}")
            region = aws.get_region(opts=pulumi.InvokeOptions(parent=self)).region
            settings = inputs.load_component_settings(region, values, entries)
            if entries and name not in settings.capacities:
                raise SettingsError("matrix creates jobs with other names; use the component GpuSpot for it")
        except SettingsError as error:
            raise SettingsError("\n".join(f"{name}.{line}" for line in str(error).splitlines())) from None
        prefix = f"{PACKAGE}-{stack_name}-"
        stack.declare_in(build_scope(settings, stack_name, self, outputs.__setitem__, prefix), settings)
        self.stack_name = pulumi.Output.from_input(stack_name)
        self.vpc_id = outputs["vpcId"]
        self.private_subnet_ids = pulumi.Output.from_input(outputs["privateSubnetIds"])
        self.alarm_topic = outputs["alarmTopic"]
        self.dashboard = outputs["dashboard"]
        self.controller_function = outputs["controllerFunction"]
        self.follow_decisions = outputs["followDecisions"]
        self.outputs = pulumi.Output.from_input(outputs)
        self._group = outputs["groups"].get(name, {})
        named = {"outputs": self.outputs}
        self.register_outputs({"stackName": self.stack_name, **named})


class GpuSpot(StackComponent):
    """All entries of a stack file, with one controller."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the resources; ``args`` are a stack file's keys without namespace, and ``stackName``."""
        super().__init__(name, args, opts)

    __init__.__annotations__["args"] = inputs.stack_file_type()


class GroupComponent(StackComponent):
    """Base of the components with one group, with the outputs of the group."""

    primary: pulumi.Output[str]
    """Name of the primary Auto Scaling group, or ID of the Spot Fleet request."""
    fallback: pulumi.Output[str] | None
    """Name of the On-Demand Auto Scaling group, if there is one."""
    control: pulumi.Output[str] | None
    """Name of the SSM parameter for manual control (docs/operations.md)."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None, entries: str
    ) -> None:
        """Declare the group."""
        super().__init__(name, args, opts, entries)
        self.primary, self.fallback = self._group["primary"], self._group["fallback"]
        control: str | None = self._group["control"]
        self.control = pulumi.Output.from_input(control) if control else None


class CapacityGroup(GroupComponent):
    """GPU instances that are kept at a target, without a workload of gpu-spot."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the group; it has the component's name."""
        super().__init__(name, args, opts, "services")

    __init__.__annotations__["args"] = inputs.entry_type(
        "CapacityGroupArgs", schema.Service, ("capacity", "datasets")
    )


class Service(GroupComponent):
    """GPU workers that serve requests: an entry of ``services`` with its own controller."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the service; it has the component's name."""
        super().__init__(name, args, opts, "services")

    __init__.__annotations__["args"] = inputs.entry_type("ServiceArgs", schema.Service)


class TrainingJob(GroupComponent):
    """A training job that survives interruptions: an entry of ``training`` with its own controller."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the job; it has the component's name. A ``matrix`` of separate jobs needs ``GpuSpot``."""
        super().__init__(name, args, opts, "training")

    __init__.__annotations__["args"] = inputs.entry_type("TrainingJobArgs", schema.Training)
