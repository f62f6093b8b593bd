"""`python -m torchscan` is the command line too."""

from __future__ import annotations

from torchscan.cli import main

if __name__ == "__main__":
    main(prog_name="torchscan")
