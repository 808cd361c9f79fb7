"""The whole run for people: figures, and one page.

REQUIRED INPUTS
    <results>/train.json, <results>/evaluation.json, and the counts of every stage
OUTPUTS
    <results>/training.svg and .png
    <results>/evaluation/: each figure as SVG and PNG
    <results>/report.html
"""


rule plot_training:
    """Draw the curves of the training; another look of them trains nothing."""
    input:
        training="<results>/train.json",
    output:
        curves=report(
            expand("<results>/training.{form}", form=FORMS),
            caption="../resources/captions/training.rst",
            category="Training",
        ),
    log:
        "<logs>/plot_training.log",
    benchmark:
        "<benchmarks>/plot_training.tsv"
    conda:
        "../envs/training.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        code=code_digest("plot_training.py", environment="training.yaml"),
    shell:
        "python scripts/plot_training.py"
        " --training {input.training:q}"
        " --figures {output.curves:q}"
        " --log {log:q}"


rule plot_evaluation:
    """Draw what was measured of the drafter; another look of the figures measures nothing."""
    input:
        evaluations=EVALUATIONS,
    output:
        domains=report(
            expand("<results>/evaluation/acceptance_by_domain.{form}", form=FORMS),
            caption="../resources/captions/acceptance_by_domain.rst",
            category="Evaluation",
        ),
        positions=report(
            expand("<results>/evaluation/acceptance_by_position.{form}", form=FORMS),
            caption="../resources/captions/acceptance_by_position.rst",
            category="Evaluation",
        ),
        speed=report(
            expand(
                "<results>/evaluation/speed_by_concurrency.{form}", form=SPEED_FORMS
            ),
            caption="../resources/captions/speed_by_concurrency.rst",
            category="Evaluation",
        ),
    log:
        "<logs>/plot_evaluation.log",
    benchmark:
        "<benchmarks>/plot_evaluation.tsv"
    conda:
        "../envs/training.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        code=code_digest("plot_evaluation.py", environment="training.yaml"),
    shell:
        "python scripts/plot_evaluation.py"
        " --evaluations {input.evaluations:q}"
        " --figures {output:q}"
        " --log {log:q}"


rule report:
    """Show the whole run on one page."""
    input:
        sources=expand("<results>/sources/{source}.stats.json", source=SOURCES),
        merged="<results>/merged/stats.json",
        responses=[] if KEEP_RESPONSES else "<results>/responses/stats.json",
        rows="<results>/tokenized/stats.json",
        samples="<results>/verified_rows.json",
        stamp="<results>/verified.json",
        training="<results>/train.json",
        drafter="<results>/drafter/config.json",
        evaluations=EVALUATIONS,
        figures=rules.plot_evaluation.output,
        templates=REPORT_TEMPLATES,
    output:
        report=report(
            "<results>/report.html",
            caption="../resources/captions/report.rst",
            category="The whole run",
        ),
    log:
        "<logs>/report.log",
    benchmark:
        "<benchmarks>/report.tsv"
    conda:
        "../envs/training.yaml"
    resources:
        mem_mb=1000,
        runtime=30,
        running=canonical({"serving": SERVING, "trainer": TRAINER}),
    params:
        settings=lambda w: settings("report"),
        code=code_digest("report.py", environment="training.yaml"),
        benchmarks=f"results/{RUN}/benchmarks",
    shell:
        "python scripts/report.py"
        " --settings {params.settings:q}"
        " --running {resources.running:q}"
        " --sources {input.sources:q}"
        " --merged {input.merged:q}"
        " --responses {input.responses:q}"
        " --rows {input.rows:q}"
        " --samples {input.samples:q}"
        " --stamp {input.stamp:q}"
        " --training {input.training:q}"
        " --drafter {input.drafter:q}"
        " --evaluations {input.evaluations:q}"
        " --figures {input.figures:q}"
        " --benchmarks {params.benchmarks:q}"
        " --templates {input.templates:q}"
        " --report {output.report:q}"
        " --log {log:q}"
