"""How often the verifier misses a fault, and how often it rejects what is right: measured, per gate."""
