"""The routes of the HTTP API, their request and response bodies, and what they do."""
