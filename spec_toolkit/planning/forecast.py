"""What a launch will have room for and what its drafts may be worth, before anything runs. Pure."""

from msgspec import Struct

from spec_toolkit.facts.evidence import Evidence
from spec_toolkit.facts.records import Tables
from spec_toolkit.planning.admission import Admission, derive_admission
from spec_toolkit.planning.memory.ledger import Ledger
from spec_toolkit.planning.memory.situated import draw_up
from spec_toolkit.planning.situation import Situation
from spec_toolkit.planning.speed.outlook import Outlook, derive_outlook


class Forecast(Struct, frozen=True, kw_only=True):
    ledger: Ledger  # of one rank's memory
    admission: Admission | None  # None: neither the launch nor the engine names a cap
    outlook: Outlook | None  # None: nothing is drafted


def make_forecast(situation: Situation, tables: Tables, evidence: Evidence | None = None) -> Forecast:
    """`evidence`: of just this launch, or None."""
    ledger = draw_up(situation)
    admission = derive_admission(situation, ledger.room)
    outlook = derive_outlook(situation, admission, tables, evidence) if admission else None
    return Forecast(ledger=ledger, admission=admission, outlook=outlook)
