"""Judges what any Kafka cluster did under faults: workloads, histories, the checker and its report."""
