"""Rehearsals: the deployed program runs on moto against a simulated Spot market.

From the bottom up:

- ``cloud``: the local cloud. ``holders`` wraps Auto Scaling groups (``fleet_holder``: Spot Fleets),
  ``instances`` runs their instances in moto from launch to purge, ``heartbeats`` writes the worker registry,
  ``fault_injection`` has a switch for each optional fault of AWS; ``local_cloud`` combines them.
- ``machines``: the node agent's own code on simulated instances.
- ``fleets``, ``loaded_fleet``: a group of the local cloud as a fleet of the market engine.
- ``rehearse``: one run of the engine against such a fleet, from set-up to ``results``.
- ``services``: the same for the services of a chain, whose workers are real.
- ``report``: summary, page and pictures of the results. ``commands``: implementation of ``gpu-spot demo``,
  ``deploy --local`` and ``drill --rehearse``.
"""
