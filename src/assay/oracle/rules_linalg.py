"""Linear algebra and transforms: errors by the backward error of stable algorithms.

A backward stable algorithm returns the exact result for an input perturbed by about u·sqrt(n) relative to its
norm. So the perturbed runs decompose or solve a perturbed matrix, and conditioning shows by itself.
"""

from __future__ import annotations
