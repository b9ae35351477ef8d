"""The serving process as a broker of a cluster: metadata, registration, adoption and return of groups, placements."""
