"""torchscan handlers for Hugging Face Transformers: what its models compute outside of `torch.nn` layers."""
