"""One generation over many connections; sans-IO."""
