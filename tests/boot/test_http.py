"""An HTTP service: its workers behind a proxy of its own machine."""

from __future__ import annotations

from tests.boot.rig import Rig, undisturbed

ASK = "curl --silent --max-time 5 --output /dev/null --write-out '%{http_code}' http://127.0.0.1:8080/"


def test_a_proxy_finds_the_workers_and_comes_back_after_kills(rig: Rig) -> None:
    worker, proxy = rig.machine("web"), rig.proxy("web")
    rig.booted(worker)
    rig.phase("first heartbeat", worker, lambda: rig.ready("web", worker))
    rig.phase("proxy answers", proxy, lambda: proxy.run(ASK, check=False) == "200")
    assert {*proxy.units()} == {"gpu-spot-proxy.service"}
    # It has no work to lose, and is open to the network: updates come by themselves.
    assert "Enable" not in proxy.run("apt-config dump APT::Periodic")
    for machine in (worker, proxy):
        undisturbed(machine)

    rig.sizes(proxy)
    proxy.kill("haproxy.service")
    rig.measure("answers after HAProxy's kill", lambda: proxy.run(ASK, check=False) == "200")
    proxy.kill("gpu-spot-proxy.service")
    assert proxy.run(ASK) == "200"
    rig.wait_for(lambda: proxy.restarts() == {"gpu-spot-proxy.service": 1})
