"""Raw files to conversation records and held-out prompts, one source at a time.

REQUIRED INPUTS
    whatever `sources` and `evaluate.prompt_sets` in the configuration name: local files, a hub data
    set, or addresses
OUTPUTS
    <results>/raw/{source}/ and <results>/raw/{source}.manifest.json
    <results>/sources/{source}.jsonl, .rejects.jsonl and .stats.json
    <results>/evaluation/prompts/{source}.jsonl, .rejects.jsonl and .stats.json
"""


rule fetch_source:
    """Bring the raw files of a source or a set of prompts; the manifest is written last."""
    input:
        files=lambda w: source_entry(CONFIG, w.source).get("files", []),
    output:
        manifest="<results>/raw/{source}.manifest.json",
    log:
        "<logs>/fetch_source/{source}.log",
    benchmark:
        "<benchmarks>/fetch_source/{source}.tsv"
    retries: 1
    localrule: True
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=1000,
        runtime=240,
    params:
        settings=lambda w: settings("fetch_source", w.source),
        code=code_digest("fetch_source.py", environment="data.yaml"),
    shell:
        "python scripts/fetch_source.py"
        " --source {wildcards.source:q}"
        " --settings {params.settings:q}"
        " --manifest {output.manifest:q}"
        " --log {log:q}"


rule normalize_source:
    """Convert the raw rows of a source to conversation records; every row is accounted for."""
    input:
        manifest="<results>/raw/{source}.manifest.json",
    output:
        records="<results>/sources/{source}.jsonl",
        rejects="<results>/sources/{source}.rejects.jsonl",
        stats="<results>/sources/{source}.stats.json",
    log:
        "<logs>/normalize_source/{source}.log",
    benchmark:
        "<benchmarks>/normalize_source/{source}.tsv"
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=4000,
        runtime=120,
    params:
        settings=lambda w: settings("normalize_source", w.source),
        code=lambda w: code_digest(
            "normalize_source.py",
            f"lib/formats/{source_entry(CONFIG, w.source)['format']}.py",
            environment="data.yaml",
        ),
    shell:
        "python scripts/normalize_source.py"
        " --settings {params.settings:q}"
        " --manifest {input.manifest:q}"
        " --records {output.records:q}"
        " --rejects {output.rejects:q}"
        " --stats {output.stats:q}"
        " --log {log:q}"


rule prepare_prompts:
    """Convert the raw rows of a set of prompts to held-out prompts; every row is accounted for."""
    input:
        manifest="<results>/raw/{source}.manifest.json",
    output:
        prompts="<results>/evaluation/prompts/{source}.jsonl",
        rejects="<results>/evaluation/prompts/{source}.rejects.jsonl",
        stats="<results>/evaluation/prompts/{source}.stats.json",
    log:
        "<logs>/prepare_prompts/{source}.log",
    benchmark:
        "<benchmarks>/prepare_prompts/{source}.tsv"
    conda:
        "../envs/data.yaml"
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        settings=lambda w: settings("prepare_prompts", w.source),
        code=code_digest("prepare_prompts.py", environment="data.yaml"),
    shell:
        "python scripts/prepare_prompts.py"
        " --settings {params.settings:q}"
        " --manifest {input.manifest:q}"
        " --prompts {output.prompts:q}"
        " --rejects {output.rejects:q}"
        " --stats {output.stats:q}"
        " --log {log:q}"
