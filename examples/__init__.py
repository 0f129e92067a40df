"""Programs that show the whole of it at work; `make run` runs `examples.flights`."""
