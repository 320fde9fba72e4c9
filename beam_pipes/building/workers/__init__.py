"""The processes that build shards: how they start, what they report, and what happens when one stops or dies."""
