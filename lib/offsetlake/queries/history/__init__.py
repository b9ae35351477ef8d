"""Questions that history answers: offsets and groups at instants, differences, deleted offsets, decided records."""
