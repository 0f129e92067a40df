"""What this broker knows of the others, and its lines to them."""
