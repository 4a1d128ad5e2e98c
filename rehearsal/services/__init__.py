"""Real workers of a stack's services, on a real broker, while a simulated market interrupts instances.

``world`` has the script: closures, office, rate. ``hosts`` runs the instances of a service, ``fleet`` is
their group in the local cloud, ``traffic`` is the client with its external API, ``rehearse`` runs all.
"""
