"""Programs as users of DALI write them: plain modules, of which a test changes the imports alone."""
