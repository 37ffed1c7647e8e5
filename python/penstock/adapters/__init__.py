"""The batches of a `Loader` in torch, JAX and Keras; each module is imported on demand."""
