"""Probes: concrete experiments and the values, sizes and layouts they use."""
