"""A proxy of an HTTP service: HAProxy's configuration, its servers at run time, and what it counts.

``haproxy_config`` renders the file, ``unit`` starts HAProxy with it, ``servers`` decides which server has
which address, ``discovery`` lists the workers' hosts, ``runtime`` speaks to HAProxy's socket, ``counts``
turns its statistics into a `ProxyState`, ``metrics`` into metrics, and ``supervisor`` runs all of them.
HAProxy itself is a unit of the operating system's package: it serves on while the agent restarts.
"""
