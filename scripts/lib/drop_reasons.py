"""Why the merge leaves records out."""

DROP_REASONS = {
    "contaminated": "it shares a run of words or code tokens with an evaluation prompt, the winner",
    "duplicate": "the winner is the same conversation",
    "beginning": "the winner, of the same source, begins with this conversation and goes on",
    "duplicate_prompt": "the winner has the same first question and tools",
    "near_duplicate": "the winner asks nearly the same, with nearly the same tools",
    "over_quota": "the source has more conversations than its quota",
    "over_max_samples": "the corpus has more conversations than merge.max_samples",
}
"""Every reason why a record may be left out of the corpus, in the order in which they are tried."""
