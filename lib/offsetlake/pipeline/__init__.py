"""The jobs; `runner` runs them in their order."""
