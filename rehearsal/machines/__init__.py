"""The node agent on simulated instances, in simulated time.

A node starts from the user data of its instance and runs the agent's own subcommands
(``userdata.agent.tasks``). Clock, metadata, disks and training process are simulated. Volumes and snapshots
are moto's, with realistic delays and real folders as content.
"""
