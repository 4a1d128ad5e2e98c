"""The lease of a training job: one instance at a time works on it and writes its checkpoints.

`store` has it in the job's item in DynamoDB, `tenure` takes it and gives it back, `keeper` renews it while
the job runs, `fence` kills what would outlive it. What a holder has besides, a data volume, is a matter of
``storage/volume``.
"""
