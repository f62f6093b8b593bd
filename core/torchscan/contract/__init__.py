"""What a plugin sees, and nothing more: calls, states, handlers, token relations, hooks."""
