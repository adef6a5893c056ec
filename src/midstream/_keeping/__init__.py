"""Streams with a key, kept while they run."""
