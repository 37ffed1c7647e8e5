"""What is done with datasets: a folder for each group of verbs. `penstock` offers each verb as a function."""
