"""Sources of tasks: where raw examples come from, and the caches that take their place."""
