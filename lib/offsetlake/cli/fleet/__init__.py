"""Many lakes at once: the file that lists them, and the processes that answer a question for each of them."""
