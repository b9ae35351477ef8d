"""Transactions: their coordinator, their rules and their log."""
