"""Who is installed, and which handler decides which metric."""
