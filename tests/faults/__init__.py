"""What goes wrong around a lock: each fault ends in a clear error or in a loss that is noticed."""
