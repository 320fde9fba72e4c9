"""Finished examples, each small enough to read in one sitting."""
