"""Tasks and mixtures as `tf.data.Dataset`s."""
