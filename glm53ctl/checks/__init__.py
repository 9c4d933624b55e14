"""Judgements before a start: facts and configuration in, findings out."""
