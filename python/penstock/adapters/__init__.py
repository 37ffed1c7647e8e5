"""Adapters that deliver the batches of a `Loader` to torch, JAX and Keras. Each module is imported on demand."""
