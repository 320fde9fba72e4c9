"""What caches hold, where it came from, and what a run has read: documents for regulators, catalogues and readers.

facts_of([Cache.open("books")])  ──disclose(…, "disclosure")──►  Croissant, EU, California, ML-BOM, data card
"""

from beam_pipes.disclosure.disclose import FORMATS as FORMATS
from beam_pipes.disclosure.disclose import disclose as disclose
from beam_pipes.disclosure.facts import Facts as Facts
from beam_pipes.disclosure.facts import facts_of as facts_of
from beam_pipes.disclosure.facts import facts_of_run as facts_of_run
