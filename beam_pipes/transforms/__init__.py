"""The library of things done to examples; it knows declarations, not sockets."""
