"""Measures engines in one run, taking turns, so that only their ratio counts."""
