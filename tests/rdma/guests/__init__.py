"""Two virtual machines with soft-RoCE: real verbs, as far as a kernel can have them without a card.

`Guests` boots them with QEMU and joins them by two rails. They hold Debian's own kernel, rdma-core
and its tools, and see the product of this checkout read-only.
"""

from .guests import HCAS, Guests, default_state, program
from .machine import Job, Machine, accelerator
from .needs import why_not

__all__ = ["HCAS", "Guests", "Job", "Machine", "accelerator", "default_state", "program", "why_not"]
