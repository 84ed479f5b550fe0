"""The parts of the contract suite, a file for each promise."""

from __future__ import annotations

from .answers import Answers
from .cleaning import Cleaning
from .exclusion import Exclusion
from .fencing import Fencing
from .flags import Flags
from .groups import Groups
from .handing import Handing
from .inputs import Inputs
from .interruptions import Interruptions
from .leading import Leading
from .leftovers import Leftovers
from .limits import Limits
from .liveness import Liveness
from .min_hold import MinHold
from .names import Names
from .ownership import Ownership
from .reentry import Reentry
from .shared import Shared
from .told import Told
from .visible import Visible
from .waiting import Waiting

__all__ = [
    "Answers",
    "Cleaning",
    "Exclusion",
    "Fencing",
    "Flags",
    "Groups",
    "Handing",
    "Inputs",
    "Interruptions",
    "Leading",
    "Leftovers",
    "Limits",
    "Liveness",
    "MinHold",
    "Names",
    "Ownership",
    "Reentry",
    "Shared",
    "Told",
    "Visible",
    "Waiting",
]
