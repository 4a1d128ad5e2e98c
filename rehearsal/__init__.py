"""Rehearsals: the deployed program runs on moto against a simulated Spot market.

From the bottom up:

- ``cloud``: the local cloud. ``holders`` wraps Auto Scaling groups (``fleet_holder``: Spot Fleets),
  ``instances`` runs their instances in moto from launch to purge, ``heartbeats`` writes the worker registry;
  ``local_cloud`` combines them.
- ``machines``: the node agent's own code on simulated instances.
- ``fleets``: a group of the local cloud as a fleet of the market engine.
- ``rehearse``: one run of the engine against such a fleet, from set-up to ``results``.
- ``report``: summary and page of the results. ``commands``: ``gpu-spot demo`` and ``deploy --local``.
"""
