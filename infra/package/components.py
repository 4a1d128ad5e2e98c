"""The components. Each declares what a stack file with the same keys does, below itself."""

# Without postponed annotations: the SDK makes the package's schema of them, and reads no text.

from collections.abc import Mapping
from typing import Any, Final

import pulumi
import pulumi_aws as aws

from infra import schema
from infra.package import inputs
from infra.program import stack
from infra.scope import scope_of
from infra.settings import SettingsError

PACKAGE: Final = "gpu-spot"


class WholeStack(pulumi.ComponentResource):
    """What all of them tell once they stand."""

    stack_name: pulumi.Output[str]
    """What stands for a stack's name in names, tags and parameters."""
    vpc_id: pulumi.Output[str]
    """The VPC."""
    private_subnet_ids: pulumi.Output[list[str]]
    """Where instances are."""
    alarm_topic: pulumi.Output[str]
    """The topic that alarms are sent to."""
    dashboard: pulumi.Output[str]
    """The dashboard's name."""
    controller_function: pulumi.Output[str]
    """The function that keeps the capacity."""
    follow_decisions: pulumi.Output[str]
    """A command that shows what the controller does and why."""
    told: pulumi.Output[dict[str, Any]]
    """All that a stack of gpu-spot exports, by the same names."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None, entries: str = ""
    ) -> None:
        """Declare what ``args`` ask for, as an entry of the list ``entries`` or as all of a stack file."""
        super().__init__(f"{PACKAGE}:index:{type(self).__name__}", name, None, opts)
        told: dict[str, Any] = {}
        try:
            given = inputs.plain(args)
            if entries and given.setdefault("name", name) != name:
                raise SettingsError(f"name: {given['name']!r}, allowed: none (a group has its component's)")
            stack_name = given.pop(inputs.STACK_NAME, f"{pulumi.get_project()}-{pulumi.get_stack()}-{name}")
            region = aws.get_region(opts=pulumi.InvokeOptions(parent=self)).region
            settings = inputs.settings(region, given, entries)
            if entries and name not in settings.capacities:
                raise SettingsError("matrix: makes jobs of other names, allowed: in GpuSpot")
        except SettingsError as wrong:
            raise SettingsError("\n".join(f"{name}.{line}" for line in str(wrong).splitlines())) from None
        stack.within(scope_of(settings, stack_name, self, told.__setitem__), settings)
        self.stack_name = pulumi.Output.from_input(stack_name)
        self.vpc_id = told["vpcId"]
        self.private_subnet_ids = pulumi.Output.from_input(told["privateSubnetIds"])
        self.alarm_topic = told["alarmTopic"]
        self.dashboard = told["dashboard"]
        self.controller_function = told["controllerFunction"]
        self.follow_decisions = told["followDecisions"]
        self.told = pulumi.Output.from_input(told)
        self._group = told["groups"].get(name, {})
        self.register_outputs({"stackName": self.stack_name, "told": self.told})


class GpuSpot(WholeStack):
    """All that one stack file can ask for, with one controller for everything in it."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare it; ``args`` are the keys of a stack file without their namespace, and ``stackName``."""
        super().__init__(name, args, opts)

    __init__.__annotations__["args"] = inputs.of_stack_file()


class OneGroup(WholeStack):
    """What the components of one group tell beside it."""

    primary: pulumi.Output[str]
    """The Auto Scaling group, or the Spot Fleet request, that is mostly spot."""
    fallback: pulumi.Output[str] | None
    """The Auto Scaling group on-demand, where there is one."""
    control: pulumi.Output[str] | None
    """The parameter by which a person takes over (docs/operations.md)."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None, entries: str
    ) -> None:
        """Declare the group."""
        super().__init__(name, args, opts, entries)
        self.primary, self.fallback = self._group["primary"], self._group["fallback"]
        control: str | None = self._group["control"]
        self.control = pulumi.Output.from_input(control) if control else None


class CapacityGroup(OneGroup):
    """GPU instances that are kept at a target, with no work of gpu-spot's on them."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the group, which has the component's name."""
        super().__init__(name, args, opts, "services")

    __init__.__annotations__["args"] = inputs.of_entry(
        "CapacityGroupArgs", schema.Service, ("capacity", "datasets")
    )


class Service(OneGroup):
    """GPU workers that serve requests: an entry of ``services`` with a controller of its own."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the service, which has the component's name."""
        super().__init__(name, args, opts, "services")

    __init__.__annotations__["args"] = inputs.of_entry("ServiceArgs", schema.Service)


class TrainingJob(OneGroup):
    """A training job that survives its instances: an entry of ``training`` with a controller of its own."""

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Declare the job, which has the component's name. Several of a ``matrix`` need a ``GpuSpot``."""
        super().__init__(name, args, opts, "training")

    __init__.__annotations__["args"] = inputs.of_entry("TrainingJobArgs", schema.Training)
