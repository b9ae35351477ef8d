"""Changes of offsets that visitors of the console request: the form, the plan, its execution and the undo."""
