"""The launch that waits for this instance: extended while it prepares, given up in time."""

from __future__ import annotations

from typing import Final

from contracts.names import METRIC_BOOT_FAILURES
from userdata.agent.aws import hooks
from userdata.agent.aws.alarm_metrics import AlarmMetrics
from userdata.agent.machine import files, log
from userdata.agent.machine.errors import AgentError, RefusedError
from userdata.agent.tasks.node import STATE_POLL_SECONDS, Node

EXTENSION_SECONDS: Final = 240.0
"""The hook times out 600 s after its last extension, so two in a row may fail."""
MAX_FAILING_SECONDS: Final = 540.0
"""Time for further tries since the last extension: the agent gives the reason before the hook times out."""
MAX_SECONDS: Final = 3600.0
_HOOK_WAIT_SECONDS: Final = 120.0
"""The hook may start after the agent."""
_LOG_SECONDS: Final = 15.0
"""Time for the CloudWatch agent to send the reason: it sends logs every 5 s."""
_FILE: Final = "launch.json"


class Launch:
    """The wait of an instance's launch. A file counts it over restarts of the unit, until the next boot.

    It is extended at the first try, then only by a try that takes long, not by tries that fail at once.
    """

    def __init__(self, node: Node, hook: str) -> None:
        self._node, self._hook, self._path = node, hook, node.directory / _FILE
        self._tried_at = node.clock.monotonic()
        record = files.read_json(self._path) or {}
        self._since = float(record.get("since", self._tried_at))
        self._extended_at = float(record["extended"]) if "extended" in record else None

    def extend_if_due(self) -> None:
        """Extend the hook every few minutes; raise `AgentError` once the launch has waited for an hour."""
        now, node = self._node.clock.monotonic(), self._node
        if now - self._since >= MAX_SECONDS:
            raise AgentError(f"not prepared in {MAX_SECONDS / 60:.0f} minutes")
        extended_at = self._extended_at
        if extended_at is not None and now - max(extended_at, self._tried_at) < EXTENSION_SECONDS:
            return
        self._record(now)
        try:
            client = node.clients.autoscaling(node.config.region)
            hooks.extend(client, node.group_of(self._hook), self._hook, node.identity.instance)
        except AgentError as error:
            log.warning("hook not extended", hook=self._hook, error=str(error))

    def complete(self) -> None:
        """Let the launch go on. If none waits within two minutes, this boot is a restart."""
        node, end = self._node, self._node.clock.monotonic() + _HOOK_WAIT_SECONDS
        while not node.complete(self._hook, "CONTINUE"):
            if node.clock.monotonic() >= end:
                log.info("hook not active", hook=self._hook)
                break
            node.clock.sleep(STATE_POLL_SECONDS)
        self._path.unlink(missing_ok=True)

    def give_up_if_due(self, error: AgentError) -> None:
        """Return if there is time for another try after ``error``; else abandon the launch.

        Raises:
            RefusedError: it is abandoned, or no launch waits; the unit is not restarted.
            AgentError: AWS did not answer.
        """
        node, now = self._node, self._node.clock.monotonic()
        if self._extended_at is None:
            self._record(self._since)
        assert self._extended_at is not None
        if now - self._since < MAX_SECONDS and now - self._extended_at < MAX_FAILING_SECONDS:
            return
        reason = f"not prepared after {(now - self._since) / 60:.0f} minutes of tries: {error}"
        log.error("launch given up", hook=self._hook, reason=reason)
        node.clock.sleep(_LOG_SECONDS)
        if node.complete(self._hook, "ABANDON"):
            cloudwatch = node.clients.cloudwatch(node.config.region)
            AlarmMetrics(cloudwatch, node.config.stack, node.config.group).increment(METRIC_BOOT_FAILURES)
        self._path.unlink(missing_ok=True)
        raise RefusedError(reason)

    def _record(self, extended_at: float) -> None:
        self._extended_at = extended_at
        files.write_json(self._path, {"since": self._since, "extended": extended_at})
