"""A worker without work: it reports its slots to the worker registry and does nothing else.

Runs on the instance's own Python and boto3. Quiet while the instance waits in a warm pool.
"""

from __future__ import annotations

import http.client
import logging
import os
import time
from collections.abc import Callable
from typing import Any

METADATA_HOST = "169.254.169.254"
HEARTBEAT_SECONDS = 15
POLL_SECONDS = 5
HOOK_SECONDS = 600
EXPIRES_SECONDS = 3600


class Metadata:
    """The instance metadata service, version 2."""

    def __init__(self, host: str = METADATA_HOST) -> None:
        """Talk to ``host``, a name or address with an optional port."""
        self._host = host

    def get(self, path: str) -> str | None:
        """Return ``/latest/meta-data/<path>``, ``None`` where it does not exist now; raise ``OSError``."""
        token = self._fetch("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        return self._fetch("GET", f"meta-data/{path}", {"X-aws-ec2-metadata-token": token or ""})

    def _fetch(self, method: str, path: str, headers: dict[str, str]) -> str | None:
        connection = http.client.HTTPConnection(self._host, timeout=2)
        try:
            connection.request(method, f"/latest/{path}", headers=headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status == http.client.NOT_FOUND:
            return None
        if response.status != http.client.OK:
            raise OSError(f"instance metadata {path}: status {response.status}")
        return text


class Worker:
    """All slots of one instance."""

    def __init__(
        self,
        metadata: Metadata,
        dynamodb: Any,
        autoscaling: Any,
        settings: dict[str, str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take boto3 clients, and the environment that the systemd unit sets."""
        self._metadata, self._clock = metadata, clock
        self._dynamodb, self._autoscaling = dynamodb, autoscaling
        self._group, self._table = settings["GPU_SPOT_GROUP"], settings["GPU_SPOT_REGISTRY_TABLE"]
        self._slots, self._hook = int(settings["GPU_SPOT_SLOTS"]), settings["GPU_SPOT_LAUNCH_HOOK"]
        self._instance = metadata.get("instance-id") or ""
        self._since: float | None = None
        self._last = 0.0
        self._target = ""
        self._target_since = 0.0
        self._hook_waits = False

    def tick(self) -> None:
        """Do what is due now; raise what metadata or AWS raise, which a later tick may mend."""
        now = self._clock()
        target = self._metadata.get("autoscaling/target-lifecycle-state") or ""
        if target != self._target:
            self._target, self._target_since, self._hook_waits = target, now, bool(self._hook and target)
        if self._hook_waits and now - self._target_since <= HOOK_SECONDS:
            self._complete_hook()
        if target.startswith("Warmed:"):
            self._since = None
        elif now - self._last >= HEARTBEAT_SECONDS:
            self._report(now)

    def _report(self, now: float) -> None:
        self._since = self._since or now
        for slot in range(self._slots):
            self._dynamodb.update_item(
                TableName=self._table,
                Key={"group": {"S": self._group}, "worker": {"S": f"{self._instance}/{slot}"}},
                UpdateExpression="SET #instance = :instance, #since = :since, #heartbeat = :now, "
                "#state = :ready, #expires = :expires",
                ExpressionAttributeNames={f"#{name}": name for name in _ATTRIBUTES},
                ExpressionAttributeValues={
                    ":instance": {"S": self._instance},
                    ":since": {"N": f"{self._since:.3f}"},
                    ":now": {"N": f"{now:.3f}"},
                    ":ready": {"S": "ready"},
                    ":expires": {"N": str(int(now) + EXPIRES_SECONDS)},
                },
            )
        self._last = now

    def _complete_hook(self) -> None:
        """End the wait that holds a launch until this runs. It comes twice with a warm pool: in, and out."""
        try:
            self._autoscaling.complete_lifecycle_action(
                AutoScalingGroupName=self._metadata.get("tags/instance/aws:autoscaling:groupName"),
                LifecycleHookName=self._hook,
                InstanceId=self._instance,
                LifecycleActionResult="CONTINUE",
            )
        except self._autoscaling.exceptions.ClientError as error:
            # It has not begun yet, or was over before a restart: ask again until AWS gives the launch up.
            logging.warning("launch hook %s of %s: %s", self._hook, self._instance, error)
        else:
            self._hook_waits = False


_ATTRIBUTES = ("instance", "since", "heartbeat", "state", "expires")


def main() -> None:
    """Report until stopped. After an error the next tick tries again: a restart would lose ``since``."""
    import boto3

    worker = Worker(Metadata(), boto3.client("dynamodb"), boto3.client("autoscaling"), dict(os.environ))
    while True:
        try:
            worker.tick()
        except Exception:
            logging.exception("tick")
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main()
