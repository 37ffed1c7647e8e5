"""NumPy's types and arrays, for npy, npz and HDF5."""
