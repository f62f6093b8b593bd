"""Integer arithmetic, one file per family: sizes in, counts out. Nothing here knows torch or pluggy."""
