"""ZooKeeper's four-letter words: what monitors and people ask a server on its port (pure)."""

from __future__ import annotations

from kbroker.dev.stand_in.tree import Tree

WORDS = (b"ruok", b"srvr", b"stat", b"mntr", b"conf")
VERSION = "3.9.4-kbroker-stand-in"
"""Of the ZooKeeper it stands for; those who look for a real one find the rest."""


def reply_to(word: bytes, tree: Tree, connections: int) -> str:
    """Answer one of WORDS."""
    if word == b"ruok":
        return "imok"
    if word == b"mntr":
        values = {
            "zk_version": VERSION,
            "zk_server_state": "standalone",
            "zk_num_alive_connections": connections,
            "zk_global_sessions": len(tree.sessions),
            "zk_znode_count": len(tree.nodes),
            "zk_watch_count": len(tree.watches),
            "zk_ephemerals_count": sum(len(session.ephemerals) for session in tree.sessions.values()),
        }
        return "".join(f"{name}\t{value}\n" for name, value in values.items())
    if word == b"conf":
        return f"version={VERSION}\nserverId=0\n"
    return (
        f"Zookeeper version: {VERSION}\n"
        f"Connections: {connections}\n"
        f"Zxid: {tree.zxid:#x}\n"
        "Mode: standalone\n"
        f"Node count: {len(tree.nodes)}\n"
    )
