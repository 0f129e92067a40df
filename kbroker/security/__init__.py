"""Who may talk to whom: what both clients and brokers need for TLS and SASL. Opens no sockets."""
