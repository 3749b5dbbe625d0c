"""Curves, flips, groups, rank correlation, simulation, forecast."""
