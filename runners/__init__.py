"""Who runs the offline side: local, direct (and Flink, Dataflow); options, progress, the command line."""
