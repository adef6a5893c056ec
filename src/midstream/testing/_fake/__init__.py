"""The fake server: wire, model, faults, and one side a dialect."""
