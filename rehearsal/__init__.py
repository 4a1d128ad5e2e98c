"""The rehearsed cloud: a deployment brought to life, in which the market gives and takes instances.

From the bottom up:

- ``holders``: what wants instances, behind one interface: Auto Scaling groups; ``fleet_holder``: Spot Fleets.
- ``instances``: the instances that moto runs for holders, from launch to purge.
- ``views``: the deployed groups, read once.
- ``heartbeats``: what the workers on them would write into the worker registry.
- ``hostility``: what AWS does now and then, a switch each.
- ``cloud``: the local cloud, all of a deployment: its groups, instances, events and functions.
- ``fleets``: one group of the local cloud, as the market engine's far side.
- ``rehearsal``: one run of the engine over a market against such a fleet, from set-up to facts.
"""
