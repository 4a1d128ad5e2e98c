"""Contracts between infra, lambdas and userdata: names, parameters, items, agent settings, codec."""
