"""The runtime of a shared host: reconciles containers with the plan and isolates tenants.

``container``, ``firewall``, ``steps`` and ``usage`` are pure except ``firewall.apply_rules``. ``docker``,
``shape``, ``shares``, ``parts``, ``meter``, ``listing`` and ``volumes`` access this machine and AWS.
``tenancy`` starts and removes one tenant, ``supervisor`` is the control loop.
"""
