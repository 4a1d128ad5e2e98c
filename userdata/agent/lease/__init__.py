"""The lease of a training job: one instance at a time works on it and writes its checkpoints.

`store` has it in the job's item in DynamoDB, `tenure` takes it and gives it back, `keeper` renews it while
the job runs. What a holder has besides it, a data volume, is in ``storage/volume``.
"""
