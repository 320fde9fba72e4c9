"""How a cache becomes visible, whole or not at all: shards, the manifest that lists them, the pointer to a snapshot."""
