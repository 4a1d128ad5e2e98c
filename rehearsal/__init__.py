"""The rehearsed cloud: a deployment brought to life, in which the market gives and takes instances.

From the bottom up:

- ``cloud``: the local cloud. ``holders`` want instances (Auto Scaling groups; ``fleet_holder``: Spot Fleets),
  ``instances`` runs them in moto from launch to purge, ``heartbeats`` writes what their workers would,
  ``fault_injection`` has a switch for each thing that AWS does now and then; ``local_cloud`` is all of it.
- ``machines``: the node agent's own code on simulated machines.
- ``fleets``, ``loaded_fleet``, ``served_fleet``: one group of the local cloud, as the engine's far side.
- ``rehearse``: one run of the engine over a market against such a fleet, from set-up to ``results``.
- ``report``: how results are shown. ``commands``: what ``gpu-spot demo`` and its like carry out.
"""
