from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # models are built from a configuration, nothing is downloaded
sys.path.insert(0, str(Path(__file__).parent))
