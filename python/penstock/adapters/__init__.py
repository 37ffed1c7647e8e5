"""Adapters that convert the batches of a `Loader` for torch, JAX and Keras. Each module is imported on demand."""
