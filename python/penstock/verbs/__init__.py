"""What people do with datasets, one file a verb. `penstock` offers each as a function."""
