"""torchscan handlers for the layers of examplelib."""
