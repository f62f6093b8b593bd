"""Measurements of torchscan side by side with its peers: `python -m benchmarks --help`."""
