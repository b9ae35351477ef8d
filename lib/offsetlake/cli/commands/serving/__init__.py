"""The commands of the serving process: the process itself, its credentials, and the move of groups to it and back."""
