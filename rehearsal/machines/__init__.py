"""Run the node agent of training instances: its own code on simulated machines, in simulated time.

A node starts from the boot data that its instance really got. Its subcommands (``userdata.agent.tasks``) then
run as they are; the machine around them is ours: clock, metadata, disks, the training process. Volumes and
snapshots are moto's, given the times that AWS takes and real folders for content.
"""
