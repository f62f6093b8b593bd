"""torchscan handlers for the layers of einops: what is a view, a copy, a reduction, a contraction."""
