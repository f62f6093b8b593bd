"""torchscan inside other tools. Each module imports its tool, so import the one you use."""
