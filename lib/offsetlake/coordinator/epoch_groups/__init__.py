"""What the groups of the consumer protocol (KIP-848) and share groups (KIP-932) have in common (`EpochGroup`)."""
