"""What a stack file may say, told to people and to their editors: both follow from ``infra/schema/``."""
