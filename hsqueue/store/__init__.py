"""Files on the shared volume: where they lie, how they are committed, how they are checked."""
