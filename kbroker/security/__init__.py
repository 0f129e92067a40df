"""Who asks, what they may do and how much: TLS, SASL, access rules, quotas, for brokers and clients. No sockets."""
