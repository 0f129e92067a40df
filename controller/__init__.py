"""The controller: who leads what. Decisions are pure; zookeeper.py and runner.py touch the world."""
