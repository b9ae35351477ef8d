"""The command `offsetlake`: its commands, its configuration files and its output."""
