"""Transactions: the coordinator, its state transitions, the transaction log, and offset commits in transactions."""
