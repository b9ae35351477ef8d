"""The commands that serve: the serving process, its credentials, the move of groups to it and back, and the console."""
