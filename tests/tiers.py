"""Tiers of tests by path; CONTRIBUTING.md says what each tier may use.

``pytest -m pure`` selects a tier. ``long`` marks tests of any tier that take seconds: only ``make test`` runs
them. The longest matching path applies; a test in a file that is not ``long`` may have the mark itself.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
REHEARSED: Final = TESTS / "live"

_MARKS_OF: Final = {
    "boot": "boot long",
    "cluster": "cluster long",
    "commands": "adapter",
    "commands/test_json.py": "program",
    "commands/test_operators.py": "whole long",
    "contracts": "pure",
    "core": "pure",
    "core/test_hostile_walk.py": "pure long",
    "deadline": "pure",
    "deadline/test_fit.py": "pure long",
    "docs": "adapter",
    "docs/test_quick_start.py": "adapter long",
    "drill": "adapter",
    "e2e": "whole",
    "engine": "engine long",
    "forecast": "pure",
    "forecast/test_commands.py": "adapter",
    "forecast/test_fixed_costs.py": "pure long",
    "forecast/test_program.py": "program",
    "forecast/test_regions.py": "adapter",
    "health": "pure",
    "health/test_checker.py": "adapter",
    "infra": "program",
    "infra/test_accelerators.py": "pure",
    "infra/test_agent_archive.py": "archive",
    "infra/test_archive.py": "archive",
    "infra/test_boot.py": "adapter long",
    "infra/test_pin_images.py": "adapter",
    "infra/test_refusals.py": "pure long",
    "infra/test_settings.py": "pure",
    "infra/test_tensorboard_command.py": "adapter",
    "jobs": "adapter",
    "jobs/test_adoption.py": "adapter long",
    "jobs/test_steering.py": "adapter long",
    "kubernetes": "pure",
    "kubernetes/test_own_cluster.py": "program",
    "kubernetes/test_refusals.py": "pure long",
    "kubernetes/test_stack.py": "program",
    "kubernetes/test_supervise.py": "adapter long",
    "kubernetes/test_upgrade.py": "pure long",
    "lambdas": "adapter",
    "lambdas/test_archive.py": "archive",
    "lambdas/test_bench.py": "adapter long",
    "lambdas/test_many_groups.py": "adapter long",
    "lambdas/test_walk.py": "adapter long",
    "live": "program",
    "live/test_blocks.py": "pure",
    "live/test_deadline.py": "program long",
    "live/test_scheduler.py": "pure",
    "live/test_sharing.py": "program long",
    "live/test_without_volume.py": "program long",
    "market": "pure",
    "market/test_shares.py": "pure long",
    "node": "adapter",
    "node/test_accounts.py": "adapter long",
    "node/test_ahead.py": "adapter long",
    "node/test_artifacts.py": "adapter long",
    "node/test_bulkheads.py": "adapter long",
    "node/test_checkout.py": "adapter long",
    "node/test_drain.py": "adapter long",
    "node/test_experiments.py": "adapter long",
    "node/test_faults.py": "adapter long",
    "node/test_host_faults.py": "adapter long",
    "node/test_http_checks.py": "adapter long",
    "node/test_job_python.py": "adapter long",
    "node/test_jobs.py": "adapter long",
    "node/test_launch.py": "adapter long",
    "node/test_lease.py": "adapter long",
    "node/test_owners.py": "adapter long",
    "node/test_permissions.py": "program",
    "node/test_preparing.py": "adapter long",
    "node/test_process.py": "adapter long",
    "node/test_stall.py": "adapter long",
    "node/test_tasks.py": "adapter long",
    "node/test_train.py": "adapter long",
    "node/test_volume_aws.py": "adapter long",
    "node/test_volume_crash.py": "adapter long",
    "node/test_volume_hostile.py": "adapter long",
    "node/test_volume_lives.py": "adapter long",
    "node/test_watch.py": "adapter long",
    "node/test_without_volume.py": "adapter long",
    "oracles": "program",
    "package": "pure",
    "package/test_provider.py": "program",
    "package/test_template.py": "program",
    "policy": "pure",
    "policy/test_pack.py": "adapter",
    "policy/test_shipped.py": "program",
    "preflight": "adapter",
    "preflight/test_stack.py": "program",
    "queues": "adapter",
    "queues/test_broker_users.py": "adapter long",
    "queues/test_history.py": "pure",
    "queues/test_management_api.py": "pure",
    "queues/test_proxies.py": "pure",
    "queues/test_sqs_rights.py": "adapter long",
    "queues/test_watcher.py": "adapter long",
    "reference": "pure long",
    "report": "pure",
    "report/test_browser.py": "whole",
    "report/test_moves.py": "whole",
    "report/test_page.py": "whole",
    "research": "pure",
    "research/test_figures.py": "pure long",
    "research/test_prices.py": "adapter",
    "research/test_replay.py": "pure long",
    "research/test_scaling.py": "pure long",
    "review": "pure",
    "review/test_axes.py": "pure long",
    "review/test_made.py": "program",
    "review/test_oracle.py": "program",
    "review/test_page.py": "whole",
    "review/test_scripts.py": "adapter long",
    "rollout": "pure",
    "rollout/test_rollout.py": "pure long",
    "scaling": "pure",
    "scaling/test_load_sources.py": "pure long",
    "scaling/test_scaler.py": "adapter",
    "smoke": "adapter long",
    "status": "program",
    "status/test_completion.py": "adapter",
    "status/test_help.py": "pure",
    "status/test_tenant_waits.py": "pure",
    "tenants": "pure",
    "tenants/test_host.py": "adapter",
    "tenants/test_images.py": "adapter",
    "tenants/test_supervisor.py": "adapter",
    "tenants/test_volumes.py": "adapter",
    "tenants/test_waits.py": "adapter",
    "test_apart.py": "program",
    "test_arrows.py": "pure",
    "test_benches.py": "adapter long",
    "test_imports.py": "pure long",
    "test_map.py": "pure",
    "test_queue_kinds.py": "pure",
    "test_repository.py": "adapter",
    "test_vocabulary.py": "pure",
}

# Measured, about; what is not here takes less than 10 s. A wrong figure costs an idle worker at the end.
_SECONDS_OF: Final = {
    "commands/test_operators.py": 65,
    "core/test_hostile_walk.py": 18,
    "e2e/test_command.py": 11,
    "e2e/test_differential.py": 18,
    "e2e/test_iam.py": 21,
    "e2e/test_ownership.py": 13,
    "e2e/test_scaling.py": 18,
    "infra/test_agent_archive.py": 12,
    "infra/test_boot.py": 27,
    "infra/test_capacity.py": 15,
    "infra/test_fixed.py": 52,
    "infra/test_network.py": 24,
    "infra/test_program.py": 13,
    "infra/test_queue.py": 11,
    "infra/test_reachability.py": 24,
    "infra/test_sqs.py": 15,
    "infra/test_training.py": 12,
    "kubernetes/test_stack.py": 12,
    "lambdas/test_many_groups.py": 35,
    "lambdas/test_refusals.py": 14,
    "lambdas/test_walk.py": 18,
    "live/test_deadline.py": 10,
    "market/test_engine.py": 14,
    "market/test_rebalancing.py": 18,
    "market/test_shares.py": 10,
    "node/test_bulkheads.py": 60,
    "node/test_hanging.py": 11,
    "node/test_host_faults.py": 14,
    "node/test_jobs.py": 20,
    "node/test_lease.py": 19,
    "node/test_permissions.py": 71,
    "node/test_preparing.py": 15,
    "node/test_tasks.py": 10,
    "node/test_train.py": 13,
    "node/test_volume_crash.py": 12,
    "oracles/test_stacks.py": 45,
    "package/test_provider.py": 11,
    "policy/test_shipped.py": 14,
    "preflight/test_stack.py": 11,
    "real/test_crowd.py": 30,
    "real/test_docs_commands.py": 13,
    "real/test_http.py": 12,
    "real/test_queue_watcher.py": 53,
    "real/test_real_job.py": 30,
    "real/test_site.py": 24,
    "real/test_stack_files.py": 90,
    "real/test_tenants.py": 130,
    "real/test_torchrun.py": 56,
    "review/test_oracle.py": 10,
    "review/test_scripts.py": 40,
    "rollout/test_rollout.py": 23,
    "smoke/test_smoke.py": 20,
    "test_repository.py": 10,
}


@cache
def marks(path: Path) -> tuple[str, ...]:
    """Return the marks of the tests in a file: its tier, and ``long``."""
    if not path.is_relative_to(TESTS):
        return ()
    relative = path.relative_to(TESTS)
    candidates = (str(path) for path in (relative, *relative.parents))
    return tuple(next((_MARKS_OF[path] for path in candidates if path in _MARKS_OF), "").split())


def is_quick(path: Path) -> bool:
    """Return whether ``make check`` runs a file: pure, and not long as a whole."""
    names = marks(path)
    return "pure" in names and "long" not in names


def run_order(path: Path) -> tuple[int, int]:
    """Return a file's position: long ones first, the rehearsal last (its sandbox stays open).

    Of those at the same position the one that takes longest goes first: the last files of two workers end
    together.
    """
    relative = str(path.relative_to(TESTS)) if path.is_relative_to(TESTS) else ""
    seconds = _SECONDS_OF.get(relative, 0)
    if {"long", "whole"}.intersection(marks(path)):
        return 0, -seconds
    return 2 if REHEARSED in path.parents else 1, -seconds
