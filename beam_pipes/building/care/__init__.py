"""Looking after caches that are built: where a record came from, why it is missing, and how it is taken down."""
