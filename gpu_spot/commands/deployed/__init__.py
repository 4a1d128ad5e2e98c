"""Commands that read or change a deployed stack."""
