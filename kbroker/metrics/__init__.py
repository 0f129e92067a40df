"""What is counted, and how it is told."""
