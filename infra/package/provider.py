"""The component provider: its components, their schema, and errors of inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pulumi
from pulumi.errors import InputPropertiesError, InputPropertyErrorDetails
from pulumi.provider import ConstructResult
from pulumi.provider.experimental.analyzer import Analyzer, ComponentDefinition
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.server import ComponentInitError
from pydantic import BaseModel

from contracts.agent.version import VERSION
from infra import schema
from infra.package import inputs
from infra.package.components import (
    PACKAGE,
    CapacityGroup,
    GpuSpot,
    GroupComponent,
    Service,
    StackComponent,
    TrainingJob,
)
from infra.settings import SettingsError

_MODELS: Final[Mapping[str, tuple[type[BaseModel], ...]]] = {
    "CapacityGroup": (schema.Service, schema.Settings),
    "GpuSpot": (schema.Settings,),
    "Service": (schema.Service, schema.Settings),
    "TrainingJob": (schema.Training, schema.Settings),
}
_STACK_NAME: Final = (
    "Name that replaces a stack's name in names, tags and parameters; unique in an account and Region. "
    "Default: project, stack and component, with hyphens between them."
)


class Package(ComponentProvider):
    """A component provider whose schema has descriptions, and whose inputs the models validate."""

    def __init__(self) -> None:
        """Derive the schema from the components."""
        super().__init__([CapacityGroup, GpuSpot, Service, TrainingJob], PACKAGE, version=VERSION)
        self.schema = json.dumps(_add_descriptions(json.loads(self.schema or "{}")))

    def map_inputs(self, inputs: Any, component_def: ComponentDefinition) -> Any:
        """Return the inputs unchanged: names are the same on both sides, and no unknown key may be lost."""
        return inputs

    def construct(
        self, name: str, resource_type: str, inputs: Any, options: pulumi.ResourceOptions | None = None
    ) -> ConstructResult:
        """Declare a component; an error of an input names its path."""
        try:
            return super().construct(name, resource_type, inputs, options)
        except ComponentInitError as error:
            if isinstance(error.inner, SettingsError):
                raise _input_errors(name, error.inner) from None
            raise


def _input_errors(name: str, error: SettingsError) -> InputPropertiesError:
    """Return the error with one entry for each input, as the engine shows them."""
    details: list[InputPropertyErrorDetails] = []
    for line in str(error).splitlines():
        path, _, reason = line.removeprefix(f"{name}.").partition(" ")
        details.append({"property_path": path.removesuffix(":"), "reason": reason})
    return InputPropertiesError(str(error), details)


def _add_descriptions(package: dict[str, Any]) -> dict[str, Any]:
    """Add descriptions to a schema: the SDK finds no docstrings of types that are derived from models."""
    package["description"] = "Deep learning on AWS Spot GPUs, with capacity that is kept at its target."
    package["license"] = "Apache-2.0"
    models = inputs.models()
    for token, kind in package.get("types", {}).items():
        choice = models[token.rpartition(":")[2]]
        kind["description"] = " ".join((choice[0].__doc__ or "").split())
        _describe(kind["properties"], choice)
    for token, resource in package["resources"].items():
        _describe(resource["inputProperties"], _MODELS[token.rpartition(":")[2]])
        for key, output in resource["properties"].items():
            output["description"] = _OUTPUTS[key]
    return package


def _describe(properties: dict[str, Any], models: tuple[type[BaseModel], ...]) -> None:
    for key, schema_property in properties.items():
        is_stack_name = key == inputs.STACK_NAME
        schema_property["description"] = _STACK_NAME if is_stack_name else inputs.description(models, key)


def _outputs() -> dict[str, str]:
    analyzer = Analyzer(PACKAGE)
    descriptions: dict[str, str] = {}
    for component in (StackComponent, GroupComponent):
        properties, _ = analyzer.analyze_type(component, is_component_output=True)
        descriptions |= {key: output.description for key, output in properties.items() if output.description}
    return descriptions


_OUTPUTS: Final = _outputs()
