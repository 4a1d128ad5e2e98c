"""A shared host at work: what runs is made to follow the plan, and what tenants must not reach is walled off.

``container``, ``walls``, ``steps`` and ``usage`` are pure. ``docker``, ``shape``, ``shares``, ``parts``,
``meter``, ``listing`` and ``volumes`` ask this machine and AWS. ``tenancy`` is one tenant's way in and out,
``landlord`` the loop.
"""
