"""The data volume of a training job: find it, move it to this zone if needed, mount it, fill it.

`plan` is a pure function from an observation to the next step; `execute` carries out steps until the volume
is ready. It keeps nothing between passes except the ids of resources it just created (descriptions lag):
after a crash at any point the next boot continues from the observed state. Three invariants make this safe:

1. The attribute ``volume`` of the job's DynamoDB item names the *current volume*. Only the holder of the
   newest lease can change it, by a conditional write, and only to a volume that it created. A replaced volume
   never becomes current again, so it can be deleted.
2. Before the current volume is mounted, a conditional write sets the item's ``writer`` to the lease's token.
   A snapshot is up to date only if its token is newer than ``writer``: the volume was not mounted since.
   The same holds for a *candidate*, a volume that is to become the current one: the instance that created it
   continues it under later leases, until another holder has claimed or committed a volume.
3. The previous volume and older snapshots are deleted only after the new volume is mounted and committed. The
   newest snapshot stays: the next one copies only the changes since.
"""
