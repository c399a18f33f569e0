"""Elastic trainings: members may change, and the result stays the same to the bit."""

from .training import Step, Training, elastic

__all__ = ["Step", "Training", "elastic"]
