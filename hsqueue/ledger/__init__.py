"""The ledger: leases, fencing tokens and an index of ended samples in Redis, a hint to what the volume holds."""
