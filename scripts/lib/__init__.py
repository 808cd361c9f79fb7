"""Everything in Draftmill that is worth testing; scripts and rules only call it."""
