"""A stand-in for ZooKeeper, for development and tests: its tree and its protocol in one small process, on loopback.

tree.py, watches.py, access.py, paths.py and session_clock.py decide, service.py speaks to connections: none of them has
a socket, a file or a clock. journal.py keeps the tree in a folder, server.py has the sockets, process.py the process.
"""
