"""The broker's configuration: its keys, what is checked, what changes while it runs, how it is described."""
