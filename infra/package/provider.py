"""The package: its components, its schema, and what the engine is told of a wrong argument."""

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

from infra import schema
from infra.package import inputs
from infra.package.components import (
    PACKAGE,
    CapacityGroup,
    GpuSpot,
    OneGroup,
    Service,
    TrainingJob,
    WholeStack,
)
from infra.settings import SettingsError

VERSION: Final = "0.1.0"

_MODELS: Final[Mapping[str, tuple[type[BaseModel], ...]]] = {
    "CapacityGroup": (schema.Service, schema.Settings),
    "GpuSpot": (schema.Settings,),
    "Service": (schema.Service, schema.Settings),
    "TrainingJob": (schema.Training, schema.Settings),
}
_STACK_NAME: Final = (
    "What stands for a stack's name in names, tags and parameters: one for each component of an account and "
    "region. Left out: project, stack and component."
)


class Package(ComponentProvider):
    """What ``component_provider_host`` hosts, with descriptions, and with the models as judges of inputs."""

    def __init__(self) -> None:
        """Infer the schema from the components."""
        super().__init__([CapacityGroup, GpuSpot, Service, TrainingJob], PACKAGE, version=VERSION)
        self.schema = json.dumps(_described(json.loads(self.schema or "{}")))

    def map_inputs(self, inputs: Any, component_def: ComponentDefinition) -> Any:
        """Return the inputs as they are: names are the same on both sides, and none may be dropped unseen."""
        return inputs

    def construct(
        self,
        name: str,
        resource_type: str,
        inputs: Any,
        options: pulumi.ResourceOptions | None = None,
    ) -> ConstructResult:
        """Declare a component; a wrong argument is told by its path."""
        try:
            return super().construct(name, resource_type, inputs, options)
        except ComponentInitError as failed:
            if isinstance(failed.inner, SettingsError):
                raise _told(name, failed.inner) from None
            raise


def _told(name: str, wrong: SettingsError) -> InputPropertiesError:
    """Return the error that the engine shows at each argument."""
    details: list[InputPropertyErrorDetails] = []
    for line in str(wrong).splitlines():
        path, _, reason = line.removeprefix(f"{name}.").partition(": ")
        details.append({"property_path": path, "reason": reason})
    return InputPropertiesError(str(wrong), details)


def _described(package: dict[str, Any]) -> dict[str, Any]:
    """Add to a schema what each key means; the SDK finds no docstrings of what was made from models."""
    package["description"] = "Deep learning on AWS spot GPUs that keeps its own capacity full."
    package["license"] = "Apache-2.0"
    models = inputs.models()
    for token, kind in package.get("types", {}).items():
        of = models[token.rpartition(":")[2]]
        kind["description"] = " ".join((of[0].__doc__ or "").split())
        _describe(kind["properties"], of)
    for token, resource in package["resources"].items():
        _describe(resource["inputProperties"], _MODELS[token.rpartition(":")[2]])
        for key, given in resource["properties"].items():
            given["description"] = _OUTPUTS[key]
    return package


def _describe(properties: dict[str, Any], models: tuple[type[BaseModel], ...]) -> None:
    for key, given in properties.items():
        given["description"] = _STACK_NAME if key == inputs.STACK_NAME else inputs.description(models, key)


def _outputs() -> dict[str, str]:
    analyzer = Analyzer(PACKAGE)
    found: dict[str, str] = {}
    for kind in (WholeStack, OneGroup):
        properties, _ = analyzer.analyze_type(kind, is_component_output=True)
        found |= {key: one.description for key, one in properties.items() if one.description}
    return found


_OUTPUTS: Final = _outputs()
