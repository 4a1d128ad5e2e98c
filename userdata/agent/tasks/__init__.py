"""The subcommands, each a function of the `Node` that it runs on: it puts its parts together and runs them.

What they need beyond this is imported where it is used: `watch` and `metrics` do without most of it.
"""

from userdata.agent.tasks.holding import volume
from userdata.agent.tasks.landlord import landlord
from userdata.agent.tasks.machine import doctor, efs, hook, metrics, watch
from userdata.agent.tasks.node import Node
from userdata.agent.tasks.service import prepare, work
from userdata.agent.tasks.training import run

__all__ = [
    "Node",
    "doctor",
    "efs",
    "hook",
    "landlord",
    "metrics",
    "prepare",
    "run",
    "volume",
    "watch",
    "work",
]
