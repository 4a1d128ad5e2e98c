"""The scaler's decisions: the workers that a service needs, from load, queue and measured throughput."""

from lambdas.core.scaling.decide import decide as decide
