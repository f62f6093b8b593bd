"""Native handlers: exact formulas for `torch.nn`, as one plugin like any other."""
