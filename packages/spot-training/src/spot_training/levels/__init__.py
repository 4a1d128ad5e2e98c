"""Two levels of storage: a disk of this machine, often, and one that other machines see, seldom."""
