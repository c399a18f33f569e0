"""Experiments that reproduce the three papers. Each module has an EXPERIMENT for lab/results."""
