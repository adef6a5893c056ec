"""All rules of resuming: when, how, and how the seam is joined."""
