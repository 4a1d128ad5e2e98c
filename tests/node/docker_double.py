"""A double of the command ``docker``: keeps containers and networks in the JSON file ``$FAKE_DOCKER``.

It knows the options that the agent uses and refuses others, and what Docker refuses: a name or a port that is
taken, a network or a folder that is not there. Not modelled: images (but those ``missing``), processes, CDI.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

TAKES_A_VALUE = {
    *("--name", "--restart", "--network", "--user", "--tmpfs", "--cap-drop", "--security-opt", "--cpus"),
    *("--cpuset-cpus", "--memory", "--memory-swap", "--shm-size", "--pids-limit", "--log-driver", "--device"),
    *("--publish", "--mount", "--env-file", "--label"),
}
ALONE = {"--detach", "--init", "--read-only"}

STORE = Path(os.environ["FAKE_DOCKER"])
STATE: dict[str, Any] = json.loads(STORE.read_text())
CONTAINERS: dict[str, dict[str, Any]] = STATE["containers"]
NETWORKS: list[str] = STATE["networks"]


def end(text: str = "", code: int = 0) -> NoReturn:
    STORE.write_text(json.dumps(STATE))
    (sys.stderr if code else sys.stdout).write(f"{text}\n")
    sys.exit(code)


def refuse(text: str) -> NoReturn:
    end(f"docker: Error response from daemon: {text}", 125)


def by_id(identity: str) -> str:
    for name, one in CONTAINERS.items():
        if one["id"] == identity:
            return name
    refuse(f"No such container: {identity}")


def options_of(arguments: list[str]) -> dict[str, list[str]]:
    """Take the options off the front of ``arguments``."""
    options: dict[str, list[str]] = {}
    while arguments[0].startswith("--"):
        option = arguments.pop(0)
        if option in TAKES_A_VALUE:
            options.setdefault(option, []).append(arguments.pop(0))
        elif option in ALONE:
            options[option] = []
        else:
            end(f"unknown flag: {option}", 125)
    return options


def run(arguments: list[str]) -> NoReturn:
    options = options_of(arguments)
    [name], [network] = options["--name"], options["--network"]
    if name in CONTAINERS:
        refuse(f"Conflict. The container name {name} is already in use")
    if network not in NETWORKS:
        refuse(f"network {network} not found")
    taken = [one["options"].get("--publish", []) for one in CONTAINERS.values() if one["state"] == "running"]
    made = CONTAINERS[name] = {
        "id": f"{len(STATE['calls']):064x}",
        "state": "created",
        "options": options,
        "labels": dict(label.split("=", 1) for label in options["--label"]),
        "image": arguments[0],
        "command": arguments[1:],
        "env": Path(options["--env-file"][0]).read_text(),
    }
    for mount in options["--mount"]:
        source = dict(part.partition("=")[::2] for part in mount.split(","))["src"]
        if not Path(os.environ["FAKE_ROOT"] + source).exists() and not Path(source).exists():
            refuse(f"invalid mount config: bind source path does not exist: {source}")
    if any(port in ports for port in options.get("--publish", []) for ports in taken):
        refuse("port is already allocated")
    made["state"] = "running"
    end(made["id"])


def main(argv: list[str]) -> NoReturn:
    STATE["calls"].append(argv)
    match argv:
        case ["run", *arguments]:
            run(arguments)
        case ["pull", "--quiet", image]:
            if image in STATE["missing"]:
                refuse(f"manifest for {image} not found")
            end(image)
        case ["login", "--username", "AWS", "--password-stdin", registry]:
            STATE["logins"].append([registry, sys.stdin.read()])
            end("Login Succeeded")
        case ["container", "ls", "--all", "--quiet", "--no-trunc", "--filter", "label=gpu-spot.tenant"]:
            end("\n".join(one["id"] for one in CONTAINERS.values() if "gpu-spot.tenant" in one["labels"]))
        case ["container", "inspect", *ids]:
            found = [CONTAINERS[by_id(one)] for one in ids]
            shown = [
                {"Id": c["id"], "Config": {"Labels": c["labels"]}, "State": {"Status": c["state"]}}
                for c in found
            ]
            end(json.dumps(shown))
        case ["network", "ls", "--filter", "label=gpu-spot.tenant", "--format", "{{.Name}}"]:
            end("\n".join(NETWORKS))
        case ["network", "create", "--driver", "bridge", "--label", _, name]:
            if name in NETWORKS:
                refuse(f"network {name} already exists")
            NETWORKS.append(name)
            end(name)
        case ["network", "rm", name]:
            if any(name in one["options"]["--network"] for one in CONTAINERS.values()):
                refuse(f"network {name} has active endpoints")
            NETWORKS.remove(name)
            end(name)
        case ["stop", "-t", seconds, *ids]:
            for one in ids:
                CONTAINERS[by_id(one)] |= {"state": "exited", "grace": int(seconds)}
            end()
        case ["rm", "--force", identity]:
            del CONTAINERS[by_id(identity)]
            end(identity)
        case _:
            end(f"docker: unknown command: {argv}", 125)


if __name__ == "__main__":
    main(sys.argv[1:])
