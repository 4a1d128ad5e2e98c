"""All fixes and speed-ups of moto while a sandbox is open."""

from __future__ import annotations

from typing import Final

from pulumi_on_moto.fixes import (
    Patches,
    brokers,
    clusters,
    experiments,
    functions,
    parameters,
    simulation,
    storage,
)
from pulumi_on_moto.fixes.ec2 import placement, spot_prices, terminations
from pulumi_on_moto.fixes.fleets import operations as fleet_operations
from pulumi_on_moto.fixes.groups import launches, validation
from pulumi_on_moto.fixes.groups import operations as group_operations
from pulumi_on_moto.fixes.speedups.attributes import ATTRIBUTES
from pulumi_on_moto.fixes.speedups.cached_responses import CACHED_RESPONSES
from pulumi_on_moto.fixes.speedups.clients import METHODS_OF_CLIENTS, MODELS, TIMESTAMPS
from pulumi_on_moto.fixes.speedups.images import IMAGES
from pulumi_on_moto.fixes.speedups.lookups import ACCOUNT, METHODS, RETENTION, TAGS

_MODULES: Final = (
    *(parameters, functions, storage, brokers, clusters, experiments, simulation),
    *(spot_prices, placement, terminations, fleet_operations, group_operations, validation, launches),
)
FIXES: Final[Patches] = tuple(patch for module in _MODULES for patch in module.PATCHES)
SPEED_UPS: Final[Patches] = (
    *ATTRIBUTES,
    *(ACCOUNT, CACHED_RESPONSES, METHODS_OF_CLIENTS, *IMAGES, METHODS),
    *(*MODELS, RETENTION, TAGS, TIMESTAMPS),
)
