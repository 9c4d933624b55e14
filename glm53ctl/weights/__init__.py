"""Weights: where they are and whether they are what they should be."""
