"""glm53ctl: one GLM-5.3-Flash server on a pair of DGX Sparks, started, watched and explained."""

__version__ = "0.1.0"
