"""GPU metrics that the CloudWatch agent does not provide: by worker, Xid, ECC, lost GPUs, checkpoints.

Utilisation, memory, temperature and power for each GPU come from the CloudWatch agent's ``nvidia_gpu``
section and are not sent here.
"""
