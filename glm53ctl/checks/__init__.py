"""Judgements before a start: facts and configuration in, findings out."""

from glm53ctl.checks import host, links, storage, texts
from glm53ctl.checks.registry import CHECKS, Check, Node

__all__ = ["CHECKS", "Check", "Node", "host", "links", "storage", "texts"]
