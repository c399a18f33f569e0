"""Thousands of ranks in virtual time: all-reduces by rings of rings, and agreements on members in groups."""
