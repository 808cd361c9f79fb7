"""The drafter: trained by speculators, exported for a server.

REQUIRED INPUTS
    <results>/verified.json, <results>/tokenized/, <target>/
    <results>/hidden_states.json, unless a server gives the states while the drafter is trained
    the published drafter that training starts from, if `train.from` names one
OUTPUTS
    <results>/train.json; checkpoints in <results>/checkpoints/{digest8}/, which no rule declares,
    so that neither a failure nor a rerun deletes them
    <results>/drafter/: config.json, model.safetensors, README.md
"""


rule train_drafter:
    """Train the drafter, or go on where an interrupted training stopped."""
    input:
        stamp="<results>/verified.json",
        tokenized="<results>/tokenized/stats.json",
        hidden_states=[] if ONLINE else "<results>/hidden_states.json",
        weights="<target>/weights.json",
        start=published_manifest("train", "from"),
    output:
        result="<results>/train.json",
    log:
        "<logs>/train_drafter.log",
    benchmark:
        "<benchmarks>/train_drafter.tsv"
    conda:
        "../envs/training.yaml"
    threads: 8
    resources:
        **training_allocation(TRAINING_GPUS, CONFIG["train"]["nodes"]),
        mem_mb=max(3000, 32000 * TRAINING_GPUS),
        runtime=1440,  # what is not done then goes on when the job is submitted again
        serving=canonical(SERVING),
        trainer=canonical(TRAINER),
    params:
        settings=lambda w: settings("train_drafter"),
        code=code_digest(
            "train_drafter.py",
            "lib/training_launcher.py",
            "lib/cpu_hidden_states_connector.py",
            "lib/vllm_launcher.py",
            "lib/guardian.py",
            environment="training.yaml",
        ),
    shell:
        "python scripts/train_drafter.py"
        " --settings {params.settings:q}"
        " --serving {resources.serving:q}"
        " --trainer {resources.trainer:q}"
        " --stamp {input.stamp:q}"
        " --tokenized {input.tokenized:q}"
        " --hidden-states {input.hidden_states:q}"
        " --weights {input.weights:q}"
        " --start {input.start:q}"
        " --result {output.result:q}"
        " --log {log:q}"


rule export_drafter:
    """Write the best checkpoint, checked, as a folder that speculators and vLLM load."""
    input:
        result="<results>/train.json",
        weights="<target>/weights.json",
        tokenized="<results>/tokenized/stats.json",
        hidden_states=[] if ONLINE else "<results>/hidden_states.json",
    output:
        config="<results>/drafter/config.json",
        weights="<results>/drafter/model.safetensors",
        card="<results>/drafter/README.md",
    log:
        "<logs>/export_drafter.log",
    benchmark:
        "<benchmarks>/export_drafter.tsv"
    conda:
        "../envs/evaluation.yaml"
    resources:
        mem_mb=3000,
        runtime=30,
    params:
        settings=lambda w: settings("export_drafter"),
        code=code_digest("export_drafter.py", environment="evaluation.yaml"),
    shell:
        "python scripts/export_drafter.py"
        " --settings {params.settings:q}"
        " --result {input.result:q}"
        " --weights {input.weights:q}"
        " --tokenized {input.tokenized:q}"
        " --hidden-states {input.hidden_states:q}"
        " --config {output.config:q}"
        " --log {log:q}"
