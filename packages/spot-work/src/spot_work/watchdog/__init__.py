"""A process beside a worker: it keeps the worker's connections and requests, and ends a worker that hangs.

A function that holds Python's global interpreter lock stops every thread of its process, heartbeats included.
`supervisor` is the worker's side, `__main__` the process; its relays are modules of the transports.
"""
