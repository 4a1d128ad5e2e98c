"""The scaler: how many workers a service needs, from its load, its queue and measured throughput."""

from lambdas.core.scaling.decide import decide as decide
