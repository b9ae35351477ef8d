"""The jobs on Spark. `runner` runs them in their order."""
