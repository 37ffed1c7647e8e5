"""Prints results as tables: `tables` makes the tables, and `Printed` is the base class of the results."""
