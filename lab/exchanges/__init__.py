"""Experiment `exchanges`: all-reduces on one machine, through PyTorch by gradlane and Gloo, and by Open MPI."""
