"""Results as tables: `tables` makes them, and `Printed` is what a result inherits."""
