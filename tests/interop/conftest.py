"""The tests of other libraries run in separate processes, which test_loader_worlds.py starts: JAX and TensorFlow have
threads that do not survive a fork, and Keras supports one backend per process."""

collect_ignore_glob = [
    f"test_loader_{world}.py"
    for world in ("torch", "lightning", "accelerate", "jax", "keras", "grain")
]
