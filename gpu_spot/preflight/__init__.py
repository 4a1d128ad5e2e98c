"""What the first ``pulumi up`` of a stack in this account and region would trip over, looked up before it.

Everything here reads: ``stack`` the stack file, ``checks`` the account. What is missing is told with what to
do.
"""
