"""Parameters of a capacity group: declared by Pulumi, or exchanged between functions."""
