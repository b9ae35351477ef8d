"""Authentication and authorization: SASL, TLS, credentials, bearer tokens and ACLs, for Kafka's protocol and HTTP."""
