"""One partition's log on disk, in Kafka's own format; plain blocking code."""
