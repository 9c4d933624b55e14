"""From what was said to why: logs, records, readings and requests.

Pure: text in, findings out. Signatures are data (`table/`); what a signature cannot say has a
reader of its own, named after what it reads.
"""

from glm53ctl.diagnose.diagnosis import Diagnosis
from glm53ctl.diagnose.exhibits import Exhibit, explain
from glm53ctl.diagnose.log import explain_lines
from glm53ctl.diagnose.request import Answer, Side, judge_answer, lint_request, side_of
from glm53ctl.diagnose.signature import Confidence
from glm53ctl.diagnose.table import SIGNATURES

__all__ = [
    "SIGNATURES",
    "Answer",
    "Confidence",
    "Diagnosis",
    "Exhibit",
    "Side",
    "explain",
    "explain_lines",
    "judge_answer",
    "lint_request",
    "side_of",
]
