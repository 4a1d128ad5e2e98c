"""The local cloud: the same Pulumi program and the same function archives, rehearsed on moto.

It starts empty, keeps nothing between runs, and knows no update or destroy: ``pulumi up`` does that.
"""
