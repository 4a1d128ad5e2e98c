"""All fixes and speed-ups of moto while a sandbox is open."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import chain
from typing import Final

from pulumi_on_moto.fixes.broker_users import BROKER_USERS
from pulumi_on_moto.fixes.brokers import BROKERS
from pulumi_on_moto.fixes.buckets import PLAIN_TEXT
from pulumi_on_moto.fixes.clusters import CLUSTERS, POD_IDENTITIES
from pulumi_on_moto.fixes.ec2.capacity_reservations import CAPACITY_RESERVATIONS
from pulumi_on_moto.fixes.ec2.placement_groups import PLACEMENT_GROUPS
from pulumi_on_moto.fixes.ec2.spot_prices import SPOT_PRICES
from pulumi_on_moto.fixes.ec2.terminations import TERMINATION
from pulumi_on_moto.fixes.ec2.volumes import ATTACHMENTS
from pulumi_on_moto.fixes.event_patterns import EVENT_PATTERNS
from pulumi_on_moto.fixes.experiments import EXPERIMENTS
from pulumi_on_moto.fixes.fix import Fix, Patch, patched
from pulumi_on_moto.fixes.fleets.changing import CANCEL, MODIFY, REQUEST
from pulumi_on_moto.fixes.fleets.showing import HISTORY, MEMBERS, REQUESTS
from pulumi_on_moto.fixes.functions import INVOKE, POLLING, PUT_EVENTS
from pulumi_on_moto.fixes.groups.capacity import BOUNDS, MAXIMUM, NO_REFILL, STABLE_POLICY
from pulumi_on_moto.fixes.groups.launches import LAUNCHES
from pulumi_on_moto.fixes.groups.lifecycle import HOOKS
from pulumi_on_moto.fixes.groups.showing import ACTIVITIES, WARM_POOL
from pulumi_on_moto.fixes.groups.termination import NAMED_INSTANCE
from pulumi_on_moto.fixes.groups.validation import REFUSED
from pulumi_on_moto.fixes.limits import LIMITS
from pulumi_on_moto.fixes.parameters import PARAMETERS
from pulumi_on_moto.fixes.secrets import LABELS
from pulumi_on_moto.fixes.simulation import SIMULATION
from pulumi_on_moto.fixes.speedups.accounts import ACCOUNT
from pulumi_on_moto.fixes.speedups.attributes import ATTRIBUTES
from pulumi_on_moto.fixes.speedups.cached_responses import CACHED_RESPONSES
from pulumi_on_moto.fixes.speedups.clients import CLIENTS
from pulumi_on_moto.fixes.speedups.images import IMAGES
from pulumi_on_moto.fixes.speedups.methods import METHODS
from pulumi_on_moto.fixes.speedups.models import MODELS
from pulumi_on_moto.fixes.speedups.retention import RETENTION
from pulumi_on_moto.fixes.speedups.signatures import SIGNATURES
from pulumi_on_moto.fixes.speedups.stack_traces import STACK_TRACES
from pulumi_on_moto.fixes.speedups.tags import TAGS
from pulumi_on_moto.fixes.speedups.timestamps import TIMESTAMPS
from pulumi_on_moto.fixes.speedups.xml import XML

FIXES: Final[tuple[Fix, ...]] = (
    PARAMETERS,
    INVOKE,
    POLLING,
    PUT_EVENTS,
    PLAIN_TEXT,
    BOUNDS,
    MAXIMUM,
    NO_REFILL,
    STABLE_POLICY,
    REFUSED,
    NAMED_INSTANCE,
    TERMINATION,
    ACTIVITIES,
    WARM_POOL,
    LAUNCHES,
    HOOKS,
    REQUEST,
    MODIFY,
    CANCEL,
    REQUESTS,
    MEMBERS,
    HISTORY,
    SPOT_PRICES,
    CAPACITY_RESERVATIONS,
    PLACEMENT_GROUPS,
    BROKERS,
    POD_IDENTITIES,
    CLUSTERS,
    LABELS,
    EXPERIMENTS,
    SIMULATION,
    BROKER_USERS,
    EVENT_PATTERNS,
    ATTACHMENTS,
    LIMITS,
)
SPEED_UPS: Final[tuple[Patch, ...]] = (
    ACCOUNT,
    CACHED_RESPONSES,
    ATTRIBUTES,
    *CLIENTS,
    *IMAGES,
    METHODS,
    *MODELS,
    RETENTION,
    SIGNATURES,
    STACK_TRACES,
    TAGS,
    TIMESTAMPS,
    XML,
)


@contextlib.contextmanager
def applied() -> Iterator[None]:
    """Patch moto while the body runs."""
    with patched(chain.from_iterable(fix.patches for fix in FIXES)), patched(SPEED_UPS):
        yield
