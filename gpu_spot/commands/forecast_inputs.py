"""Inputs of a forecast as command-line options: stack file, market and prices."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

from contracts.jobs.attempt import JobAttempt
from gpu_spot.commands import files, traces
from gpu_spot.commands.stack import clients_for, name_in_aws
from gpu_spot.declared.stackfile import StackConfig, find_project
from gpu_spot.declared.stackfile import load as load_stack
from gpu_spot.errors import UserError, aws_error
from gpu_spot.forecast import account, text
from gpu_spot.forecast.prices import ASSUMED_SPOT, Prices, spot_history
from gpu_spot.forecast.replayed import Traces
from gpu_spot.jobs.reader import JobError, JobReader
from gpu_spot.preflight.account import ClientOf
from infra.schema import Capacity, Settings
from infra.settings import SettingsError, load_settings
from market.supply.trace import PoolTrace

_PREFIX: Final = "Pulumi."
_STACK_FILE: Final = "a stack file such as Pulumi.dev.yaml"
_FITTED_REGIONS: Final = ("us-east-1", "us-west-2")
FITTED_ON: Final = f"public Spot traces of V100 instances in {' and '.join(_FITTED_REGIONS)} of 2022 and 2023"
"""What the fitted market is from. Source: the AWS folders of skypilot-org/spot-traces."""
_PRICE_HISTORY: Final = "the JSON of `aws ec2 describe-spot-price-history`"


def read(option: str, file: Path) -> tuple[StackConfig, Settings]:
    """Return a stack file's configuration and settings; the file may be outside the project."""
    name = file.name.removeprefix(_PREFIX).partition(".")[0] if file.name.startswith(_PREFIX) else "forecast"
    files.read(option, file, _STACK_FILE, str)
    try:
        config = load_stack(find_project(), name, file=file.resolve())
    except UserError as error:
        raise ValueError(f"{option}: {file} cannot be used ({error}); name {_STACK_FILE}") from None
    try:
        return config, load_settings(config.values)
    except SettingsError as error:
        raise ValueError(f"{option} is {file}: {'; '.join(str(error).splitlines())}") from None


def account_clients(args: argparse.Namespace, config: StackConfig) -> ClientOf | None:
    """Return clients of the stack's account; None without ``--account``, which calls no AWS."""
    return clients_for(args, config) if args.account else None


def prices(args: argparse.Namespace, clients: ClientOf | None, settings: Settings) -> Prices:
    """Return the prices that the options select, in the stack file's region."""
    region = settings.region
    if args.spot_prices is not None:
        return Prices(region, files.read("--spot-prices", args.spot_prices, _PRICE_HISTORY, spot_history))
    if clients is not None:
        types = {kind for capacity in settings.capacities.values() for kind in capacity.types}
        return Prices(region, account.spot_prices(clients("ec2"), types, datetime.now(UTC)))
    return Prices(region)


def scores(clients: ClientOf | None, capacities: Mapping[str, Capacity], region: str) -> dict[str, int]:
    """Return EC2's Spot placement scores by group; empty without ``--account``."""
    return {} if clients is None else account.placement_scores(clients("ec2"), capacities, region)


def measured(clients: ClientOf | None, config: StackConfig, settings: Settings) -> Settings:
    """Return settings whose jobs with a schedule expect the median hours of their runs that are done.

    With ``--account`` only. Without such a run ``expectedHours`` stays.
    """
    jobs = list(settings.training)
    for number, job in enumerate(jobs):
        if clients is None or job.schedule is None or job.runs_on != "instances":
            continue
        if hours := account.run_hours(_attempts(clients, config, job.name)):
            jobs[number] = job.model_copy(update={"expected_hours": median(hours)})
            sys.stderr.write(f"{job.name}: {median(hours):.2f} hours, the median of {len(hours)} runs\n")
    return settings.model_copy(update={"training": tuple(jobs)})


def _attempts(clients: ClientOf, config: StackConfig, job: str) -> tuple[JobAttempt, ...]:
    """Return a deployed job's attempts; none if the stack is not deployed."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        snapshot = JobReader(clients, name_in_aws(config), config.region).find(job)
    except JobError:
        return ()
    except (BotoCoreError, ClientError) as error:
        raise aws_error(f"runs of {job}", error) from None
    return snapshot.attempts if snapshot else ()


def market(args: argparse.Namespace) -> Traces | None:
    """Return the recorded market of ``--trace``, if any."""
    return traces.load(args.trace) if args.trace else None


def basis(
    args: argparse.Namespace,
    used: Prices,
    types: Sequence[str],
    zones: Sequence[str],
    recorded: Traces | None,
    scored: Mapping[str, int],
) -> text.Basis:
    """Return the sources of a forecast of groups with these types in these zones."""
    sources = [used.sources(types), used.spot_sources(types)]
    on_demand, spot = (
        "; ".join(f"{source}, {date}{_age_note(date)}" for date, source in of) for of in sources
    )
    if assumed := ", ".join(used.assumed(types, zones)):
        low, high = ASSUMED_SPOT.low, ASSUMED_SPOT.high
        spot = "; ".join(filter(None, (spot, f"assumed at {low:g} to {high:g} of On-Demand: {assumed}")))
    is_used = any(pool.instance_type in types and pool.zone in zones for pool in used.spot)
    rest = f"{'' if is_used else ' (none of these types and zones)'}, otherwise {spot or 'none'}"
    if args.spot_prices:
        spot = f"from {args.spot_prices.name}{rest}"
    if args.account:
        spot = f"current prices of the account{rest}"
    market, market_range = _market(recorded, used.region)
    oldest = min((date for of in sources for date, _ in of), default="")
    on_demand = on_demand or f"no price of {used.region} at hand"
    return text.Basis(market, market_range, spot, on_demand, scored, oldest)


def _age_note(date: str) -> str:
    """Return the age in months of a table of prices."""
    year, month = map(int, date.split("-")[:2])
    now = datetime.now(UTC)
    months = 12 * (now.year - year) + now.month - month
    return f" ({months} months old)" if months != 1 else " (1 month old)"


def _market(recorded: Traces | None, region: str) -> tuple[str, str]:
    """Return where the Spot market is from, and what the range of a forecast is."""
    if recorded is None:
        week = "recent week" if region in _FITTED_REGIONS else "week"
        market = f"modelled from {FITTED_ON}, no {week} of {region} was seen"
        return market, text.MODELLED_RANGE
    zones = {_zone(trace) for trace in recorded}
    other_zones = sorted(zone for zone in zones if not zone.startswith(region))
    market = "recorded traces"
    if other_zones:
        market += f" of {', '.join(other_zones)}"
        market += f"; no week of {region} was seen" if len(other_zones) == len(zones) else f" and {region}"
    return market, text.RECORDED_RANGE


def _zone(trace: PoolTrace) -> str:
    """Return the zone of a trace, which its name begins with."""
    return trace.name.partition("_")[0]
