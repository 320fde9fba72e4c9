"""The life of a record after its build: where it came from, who read it, and that it is taken down."""
