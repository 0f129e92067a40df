"""Coordinators: of consumer groups, and of transactions. What decides is pure; the adapters own timers and logs."""
