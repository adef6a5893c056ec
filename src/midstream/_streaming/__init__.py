"""Streams: the only loops that read, wait and reconnect."""
