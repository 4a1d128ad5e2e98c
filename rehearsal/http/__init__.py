"""A real HTTP service on this machine: HAProxy, workers and callers, while a market takes its hosts.

``hosts`` runs the workers' hosts under the agent's supervisor, ``proxies`` runs HAProxy under its agent's,
``load_client`` is the callers' process, ``play`` is the market's script and runs all, ``page`` shows it.
``rollout`` rolls releases out, good and bad ones, by ``play_clock``.
"""
