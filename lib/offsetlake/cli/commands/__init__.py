"""The commands of `offsetlake`, a module for each family of commands."""
