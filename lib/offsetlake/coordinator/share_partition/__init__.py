"""The pure core of a share-partition leader: which records of one partition a share group has in flight (KIP-932)."""
