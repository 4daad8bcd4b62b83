"""Assay inside other tools."""
