"""Authentication and authorization of clients: SASL, TLS, credentials and ACLs."""
