"""A whole cluster in one call: child processes, the embedded ZooKeeper, free ports."""
