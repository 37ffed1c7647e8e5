"""The loader: what a training loop touches."""
