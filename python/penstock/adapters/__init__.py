"""Loaders and datasets in the terms of other libraries; each module is imported when it is asked for."""
