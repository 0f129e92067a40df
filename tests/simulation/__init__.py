"""A whole cluster in one seeded process: whole brokers, clients and ZooKeeper in one thread and in virtual time.

    make simulate SECONDS=60 SEED=7

Each machine has an event loop of its own (loop.py), all of them the same virtual time and the same source of chance.
What the operating system is to a broker (clocks, chance, sockets, threads) is played in outside.py; connections are in
network.py, ZooKeeper in zookeeper.py. world.py starts brokers, lets clients.py work, breaks what events.py draws, looks
at the promises after each step, heals everything, and has the checker of `kbroker verify` judge what clients saw.
"""
