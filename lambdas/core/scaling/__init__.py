"""How many workers a service needs now: from its load, its queue, and what its workers were seen to do."""

from lambdas.core.scaling.decide import decide as decide
