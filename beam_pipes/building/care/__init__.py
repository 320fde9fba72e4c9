"""Care for existing caches: where a record came from, why it is missing, and how it is taken down."""
