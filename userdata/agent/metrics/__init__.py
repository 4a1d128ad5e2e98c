"""GPU metrics that the CloudWatch agent does not have: by worker, Xid, ECC, lost GPUs, checkpoints.

Utilisation, memory, temperature and power for each GPU come from the CloudWatch agent's ``nvidia_gpu``
section; nothing is sent twice.
"""
