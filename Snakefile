"""Draftmill: public conversations to a drafter for speculative decoding.

    fetch_source -> normalize_source -> merge_sources -> regenerate_responses
        -> tokenize_conversations -> verify_dataset -> extract_hidden_states
        -> train_drafter -> export_drafter -> evaluate_drafter -> plot_evaluation -> report

Each rule runs the script of its own name; docs/stages.md says what each reads and writes.
"""

from snakemake.utils import min_version

min_version("9.27")

# The toy run, unless --configfile gives another configuration, which then stands alone.
if not workflow.configfiles:

    configfile: "config/config.yaml"


include: "rules/common.smk"


pathvars:
    results=f"results/{RUN}",
    logs=f"results/{RUN}/logs",
    benchmarks=f"results/{RUN}/benchmarks",
    target=target_folder(CONFIG),


include: "rules/sources.smk"
include: "rules/dataset.smk"
include: "rules/target.smk"
include: "rules/responses.smk"
include: "rules/training.smk"
include: "rules/published.smk"
include: "rules/evaluation.smk"
include: "rules/report.smk"


rule train:
    """Make the exported drafter."""
    input:
        "<results>/drafter/config.json",
        "<results>/training.svg",


rule all:
    """Make everything: the drafter, what it is worth, and the report."""
    default_target: True
    input:
        rules.train.input,
        EVALUATIONS,
        "<results>/report.html",


rule evaluate:
    """Measure the drafter."""
    input:
        EVALUATIONS,


rule dataset:
    """Make the verified data set."""
    input:
        "<results>/verified.json",


rule weights:
    """Bring the target."""
    input:
        "<target>/weights.json",


rule status:
    """Show what is stale and why; runs nothing and needs no --cores."""
    localrule: True


include: "rules/status.smk"
