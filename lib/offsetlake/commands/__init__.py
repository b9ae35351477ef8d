"""The commands: parse, build, call, report. What they do is elsewhere."""
