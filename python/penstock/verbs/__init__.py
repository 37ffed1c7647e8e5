"""The operations on datasets, called verbs, in a folder for each group. `penstock` has a function for each verb."""
