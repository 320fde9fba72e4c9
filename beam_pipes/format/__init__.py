"""What records are in bytes: features, Examples and messages, their codecs, frames of TFRecord, rows of an index."""
