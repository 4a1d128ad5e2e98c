"""The data volume of a training job: found, moved to this zone if it must be, mounted, filled; never lost.

`plan` is a pure function from what is observed to the next step; `execute` carries steps out until there is
none. Nothing is remembered between passes but the ids of what we just created (descriptions lag), so a crash
at any point leaves a state from which the next boot plans on. Three rules make that safe:

1. One attribute decides which volume is the good one, the *home*: ``volume`` in the job's DynamoDB item. It
   moves by a conditional write that only the holder of the newest lease can make, and only to a volume that
   this holder created. A volume that was replaced never becomes home again: deleting it can never be wrong.
2. Before a home is mounted, the item's ``writer`` is set to the lease's token, by a conditional write. A
   snapshot counts only if it was begun under a newer token than ``writer``: nobody has written since.
3. The old home and older snapshots are deleted only when the new home is mounted and committed. The newest
   snapshot stays: the next one copies only what has changed since.
"""
