"""The partitions this broker hosts: appends, reads, waiting requests, leadership."""
