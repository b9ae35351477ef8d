"""The lag of groups and the status of their consumers, from commits and recorded log end offsets."""
