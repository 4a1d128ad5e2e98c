"""Several leases in one group: experiments of a ``matrix``, trials of a ``study``, nodes of one job."""
