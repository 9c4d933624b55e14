"""Judgements before a start: facts and configuration in, findings out."""

from glm53ctl.checks import host, links, storage, texts
from glm53ctl.checks.registry import CHECKS, Check, Node, judge

__all__ = ["CHECKS", "Check", "Node", "host", "judge", "links", "storage", "texts"]
