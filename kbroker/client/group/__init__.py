"""Membership in consumer groups: assignors and members without I/O, and what drives them."""
