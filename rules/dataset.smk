"""Conversation records to a verified data set.

REQUIRED INPUTS
    <results>/sources/{source}.jsonl of every source
    <results>/responses/sharegpt.jsonl, unless the recorded answers are kept
    <target>/weights.json and the tokenizer beside it
OUTPUTS
    <results>/merged/sharegpt.jsonl, dropped.jsonl and stats.json
    <results>/tokenized/: data-*.arrow and the files that describe them
    <results>/verified.json, the stamp, <results>/verification.md, and a few rows with their text
"""


rule merge_sources:
    """Make one corpus: duplicates and evaluation prompts out, every drop named, split drawn."""
    input:
        records=expand("<results>/sources/{source}.jsonl", source=SOURCES),
        evaluation=EVALUATION_FILES,
    output:
        corpus="<results>/merged/sharegpt.jsonl",
        dropped="<results>/merged/dropped.jsonl",
        stats="<results>/merged/stats.json",
    log:
        "<logs>/merge_sources.log",
    benchmark:
        "<benchmarks>/merge_sources.tsv"
    conda:
        "../envs/data.yaml"
    threads: 8
    resources:
        mem_mb=lambda w, threads: 4000 + 500 * threads,
        runtime=120,
    params:
        settings=lambda w: settings("merge_sources"),
        code=code_digest("merge_sources.py", environment="data.yaml"),
    shell:
        "python scripts/merge_sources.py"
        " --settings {params.settings:q}"
        " --records {input.records:q}"
        " --evaluation {input.evaluation:q}"
        " --corpus {output.corpus:q}"
        " --dropped {output.dropped:q}"
        " --stats {output.stats:q}"
        " --workers {threads}"
        " --log {log:q}"


rule tokenize_conversations:
    """Turn conversations into token rows with loss masks, validation rows last."""
    input:
        corpus=corpus_to_tokenize(),
        weights="<target>/weights.json",
    output:
        stats="<results>/tokenized/stats.json",
        state="<results>/tokenized/state.json",
        info="<results>/tokenized/dataset_info.json",
        frequencies="<results>/tokenized/token_freq.pt",
        rows="<results>/tokenized/rows.jsonl",
    log:
        "<logs>/tokenize_conversations.log",
    benchmark:
        "<benchmarks>/tokenize_conversations.tsv"
    conda:
        "../envs/training.yaml"
    threads: 8
    resources:
        mem_mb=lambda w, threads: 1000 + 700 * threads,
        runtime=240,
    params:
        settings=lambda w: settings("tokenize_conversations"),
        code=code_digest("tokenize_conversations.py", environment="training.yaml"),
    shell:
        "python scripts/tokenize_conversations.py"
        " --settings {params.settings:q}"
        " --corpus {input.corpus:q}"
        " --weights {input.weights:q}"
        " --stats {output.stats:q}"
        " --cache cache/token_rows"
        " --workers {threads}"
        " --log {log:q}"


rule verify_dataset:
    """Read everything again and write the stamp only if every check holds."""
    input:
        sources=expand("<results>/sources/{source}.stats.json", source=SOURCES),
        merged="<results>/merged/stats.json",
        responses=[] if KEEP_RESPONSES else "<results>/responses/stats.json",
        corpus=corpus_to_tokenize(),
        tokenized="<results>/tokenized/stats.json",
        weights="<target>/weights.json",
        evaluation=EVALUATION_FILES,
    output:
        stamp="<results>/verified.json",
        report=report(
            "<results>/verification.md",
            caption="../resources/captions/verification.rst",
            category="Data set",
        ),
        samples="<results>/verified_rows.json",
    log:
        "<logs>/verify_dataset.log",
    benchmark:
        "<benchmarks>/verify_dataset.tsv"
    conda:
        "../envs/training.yaml"
    threads: 8
    resources:
        mem_mb=lambda w, threads: 3000 + 800 * threads,
        runtime=120,
    params:
        settings=lambda w: settings("verify_dataset"),
        code=code_digest("verify_dataset.py", environment="training.yaml"),
    shell:
        "python scripts/verify_dataset.py"
        " --settings {params.settings:q}"
        " --sources {input.sources:q}"
        " --merged {input.merged:q}"
        " --responses {input.responses:q}"
        " --corpus {input.corpus:q}"
        " --tokenized {input.tokenized:q}"
        " --weights {input.weights:q}"
        " --evaluation {input.evaluation:q}"
        " --stamp {output.stamp:q}"
        " --report {output.report:q}"
        " --samples {output.samples:q}"
        " --workers {threads}"
        " --log {log:q}"
