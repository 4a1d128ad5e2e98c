"""The stack file's `training[]`: a job, its matrix, and how its dataset is prepared."""
