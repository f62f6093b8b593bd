"""One scan: inputs, observing the calls, ownership and totals, the operator view, the audit."""
