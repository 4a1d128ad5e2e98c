"""The lease of a training job: one instance at a time works on it and writes its checkpoints.

`store` keeps it in the job's item in DynamoDB, `holder` acquires and releases it, `renewal` renews it while
the job runs, `fence` kills work that would outlive it. The job's data volume is managed by
``storage/volume``.
"""
