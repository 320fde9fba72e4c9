"""Loading cached tasks and mixtures without TensorFlow: from caches to model batches of NumPy arrays.

    cached split ──Python steps──▶ examples ──column steps, trimming──▶ task features ──plan──▶ rows ──convert──▶ batch

Steps after the cut run when rows are read. The library's own steps run on columns of many examples, and know the
lengths of their results in advance. Python steps run on examples, one by one.
"""
