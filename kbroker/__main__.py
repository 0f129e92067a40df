"""`python -m kbroker` is the command line."""

from kbroker.cli import main

main()
