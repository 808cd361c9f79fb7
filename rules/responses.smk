"""The target's answers to the corpus.

REQUIRED INPUTS
    <results>/merged/sharegpt.jsonl
    <target>/weights.json and the model beside it
OUTPUTS
    <results>/responses/shards/: the three files below for each shard
    <results>/responses/sharegpt.jsonl, failures.jsonl and stats.json
"""


rule regenerate_responses:
    """Have the target answer every conversation of a shard itself."""
    input:
        corpus="<results>/merged/sharegpt.jsonl",
        weights="<target>/weights.json",
    output:
        responses="<results>/responses/shards/{shard}.jsonl",
        failures="<results>/responses/shards/{shard}.failures.jsonl",
        stats="<results>/responses/shards/{shard}.stats.json",
    log:
        "<logs>/regenerate_responses/{shard}.log",
    benchmark:
        "<benchmarks>/regenerate_responses/{shard}.tsv"
    conda:
        "../envs/target.yaml"
    threads: 8
    resources:
        mem_mb=3000 + 20000 * SERVING["gpus"],
        runtime=1440,
        gpu=SERVING["gpus"] if CONFIG["responses"]["backend"] == "vllm" else 0,
        serving=canonical(SERVING),
    params:
        settings=lambda w: settings("regenerate_responses"),
        code=code_digest(
            "regenerate_responses.py",
            "lib/vllm_launcher.py",
            "lib/guardian.py",
            environment="target.yaml",
        ),
    shell:
        "python scripts/regenerate_responses.py"
        " --settings {params.settings:q}"
        " --serving {resources.serving:q}"
        " --corpus {input.corpus:q}"
        " --shard {wildcards.shard:q}"
        " --weights {input.weights:q}"
        " --responses {output.responses:q}"
        " --failures {output.failures:q}"
        " --stats {output.stats:q}"
        " --cache cache/responses"
        " --log {log:q}"


rule gather_responses:
    """Make one corpus of the answered conversations of all shards."""
    input:
        responses=expand("<results>/responses/shards/{shard}.jsonl", shard=SHARDS),
        failures=expand(
            "<results>/responses/shards/{shard}.failures.jsonl", shard=SHARDS
        ),
        stats=expand("<results>/responses/shards/{shard}.stats.json", shard=SHARDS),
    output:
        responses="<results>/responses/sharegpt.jsonl",
        failures="<results>/responses/failures.jsonl",
        stats="<results>/responses/stats.json",
    log:
        "<logs>/gather_responses.log",
    benchmark:
        "<benchmarks>/gather_responses.tsv"
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=1000,
        runtime=60,
    params:
        code=code_digest("gather_responses.py", environment="data.yaml"),
    shell:
        "python scripts/gather_responses.py"
        " --shard-responses {input.responses:q}"
        " --shard-failures {input.failures:q}"
        " --shard-stats {input.stats:q}"
        " --responses {output.responses:q}"
        " --failures {output.failures:q}"
        " --stats {output.stats:q}"
        " --log {log:q}"
