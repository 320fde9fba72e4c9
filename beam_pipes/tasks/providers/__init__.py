"""Tasks and mixtures: declared, registered, found by name, and read as datasets or as Python examples."""
