"""One big machine for many tenants: a container each, with GPUs, CPUs, memory, port and volumes of its own.

``model`` says what is declared and what a tenant gets, ``plan`` deals the machine out, ``docker`` turns a
share into a command and reads back what runs, ``landlord`` makes the one follow from the other.
"""
