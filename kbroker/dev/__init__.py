"""A whole cluster in one call: child processes, a ZooKeeper (embedded, or the stand-in), free ports."""
