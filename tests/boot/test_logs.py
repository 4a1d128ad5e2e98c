"""Logs of a machine whose workload writes without end: the agent is heard, and no disk fills."""

from __future__ import annotations

from tests.boot.rig import Rig

LINES = 200_000
LOG = "/var/log/gpu-spot.log"
FLOOD = f"""#!/bin/sh
[ "$GPU_SPOT_SLOT" = 0 ] || {{ touch "$GPU_SPOT_READY"; exec sleep infinity; }}
seq -f 'flood %.0f of lines that are as long as those of a training' 1 {LINES}
exit 3
"""


def test_a_flood_of_a_worker_silences_no_agent_and_stays_small(rig: Rig) -> None:
    machine = rig.machine("program", programs={"opt/work/worker": FLOOD})
    rig.booted(machine)
    rig.phase("flooded", machine, lambda: int(machine.run(f"grep -c '\"code\": 3' {LOG}", check=False) or 0))
    machine.run("systemctl stop gpu-spot-work", 60)

    written = "journalctl --unit gpu-spot-work --output cat"
    count = f"{written} | grep -c '^flood '"
    rig.measure("all of it", lambda: int(machine.run(count)) >= LINES)
    for where in (written, f"cat {LOG}"):  # the last lines come behind the flood's
        n = f'{where} | grep -c \'"event": "worker'
        rig.wait_for(lambda n=n: int(machine.run(f"{n} started'")) == int(machine.run(f"{n} ended'")) >= 2)
    # Not behind the flood, on the connection of the unit: journald reads each in its turn.
    at = machine.run(f"{written} -o short-unix --grep '\"code\": 3' | head -n 1").split()[0]
    said = machine.run(
        f'{written} --grep \'"code": 3\' | head -n 1 | grep -o \'"time": "[^"]*\' | cut -c 10-'
    )
    assert float(at) - float(machine.run(f"date --date '{said.strip()}' +%s.%N")) < 5.0
    errors = machine.run(f"{written} --priority err").splitlines()
    assert {line.partition('"level": ')[2].partition(",")[0] for line in errors} == {'"error"'}

    assert "gpu-spot-work[" not in machine.run("cat /var/log/syslog")
    assert "*:00/5:00" in machine.show("logrotate.timer", "TimersCalendar")
    machine.run(f"truncate --size 30M {LOG}; systemctl start logrotate.service")
    assert machine.run(f"stat --format %s {LOG} {LOG}.1").split()[0] == "0"
