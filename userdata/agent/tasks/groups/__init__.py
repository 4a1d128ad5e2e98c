"""Several leases in one group: experiments of a ``matrix``, nodes of one job."""
