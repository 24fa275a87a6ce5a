"""What a call owes its user, as the public contract asks it."""

from quantus_concepts.testing.untouched import untouched as untouched
