"""Measures an OpenAI-compatible server the way the recipes did, and keeps what was measured."""
