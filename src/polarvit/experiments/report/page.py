"""The page: one HTML file that needs nothing else, readable by day and by night."""

from __future__ import annotations

from html import escape
from pathlib import Path

from polarvit.experiments.report.charts import confusion, curves, radii
from polarvit.experiments.report.collect import Run, read_run
from polarvit.experiments.report.disk import disk, extremes, place

CSS = """
:root { color-scheme: light dark; --bg: #fcfcfb; --card: #fff; --ink: #1c1d1f; --soft: #62666d; --line: #e3e4e6;
  --run0: #0072b2; --run1: #d55e00; --run2: #009e73; --run3: #a5568a; --run4: #b07500; --run5: #555; --bad: #c62828; }
@media (prefers-color-scheme: dark) { :root { --bg: #131416; --card: #1b1d20; --ink: #e8e8e6; --soft: #a0a4ab;
  --line: #33363b; --run0: #56b4e9; --run1: #f08a4b; --run2: #3ccf9f; --run3: #d38cbb; --run4: #e0ad3c; --run5: #bbb;
  --bad: #ff6b6b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.2rem 1.4rem 4rem; max-width: 1080px; background: var(--bg); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .3rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .4rem; }
p { margin: .4rem 0 1rem; max-width: 46rem; } .soft, figcaption, footer { color: var(--soft); font-size: .88rem; }
figcaption { margin-top: .4rem; } figcaption b { color: var(--ink); }
figure { margin: 0; padding: 1rem; background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 1rem; margin: .8rem 0; }
.wide { margin: .8rem 0; } .wide svg { max-width: 680px; display: block; margin: 0 auto; }
.scroll { overflow-x: auto; } .matrix svg { max-width: 440px; display: block; margin: 0 auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .45rem .5rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--soft); font-size: .85rem; } th:first-child, td:first-child { text-align: left; }
.key { display: inline-block; width: .75em; height: .75em; border-radius: 2px; margin: 0 .35em 0 .1em; }
svg text { font-family: inherit; fill: var(--ink); } svg .small { font-size: 12px; }
svg .tiny { font-size: 10.5px; fill: var(--soft); } svg .strong { font-weight: 650; }
svg .halo { paint-order: stroke; stroke: var(--card); stroke-width: 3px; } svg .bad { fill: var(--bad); }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
svg .line { fill: none; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round; }
svg .empty { fill: var(--line); fill-opacity: .35; } svg .right { fill: var(--run0); } svg .wrong { fill: var(--bad); }
svg .on-full { fill: var(--card); } svg .bar { fill-opacity: .85; } svg .faint { fill-opacity: .55; }
svg .rim { fill: none; stroke: var(--soft); stroke-width: 1.4; } svg .ring { fill: none; stroke: var(--line); }
svg .centre { fill: var(--soft); } svg .hit { fill-opacity: .82; }
svg .miss { stroke: var(--ink); stroke-width: 1.8; } svg .leader { stroke-opacity: .5; }
svg .thumb { fill: none; stroke-width: 2; } svg .pixels { image-rendering: pixelated; }
""" + "".join(
    f"svg .line.run{i} {{ stroke: var(--run{i}); }} svg .dot.run{i}, svg .bar.run{i} {{ fill: var(--run{i}); }} "
    f".key.run{i} {{ background: var(--run{i}); }}\n"
    for i in range(6)
)
CSS += ".key.wrong { background: var(--bad); }\n"


def write_report(folders: list[Path], out: Path, *, title: str = "Training report", lead: str = "") -> Path:
    """Write one HTML page about finished runs; returns where it is."""
    runs = [read_run(folder) for folder in folders]
    sections = [f"<h1>{escape(title)}</h1>", f"<p class=soft>{escape(lead)}</p>" if lead else "", table(runs)]
    sections += ["<h2>Learning</h2>", curves(runs)]
    looked = [run for run in runs if run.seen is not None]
    for run in looked:
        if run.seen is not None and run.seen.k is not None:
            sections.append(embedding(run))
    if looked:
        sections += ["<h2>Confusion</h2>", f'<div class="row">{"".join(map(confusion, looked))}</div>']
    sections.append(colophon(runs))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(document(title, "\n".join(sections)), encoding="utf-8")
    return out


def document(title: str, body: str) -> str:
    """A whole page. Its policy forbids it to load anything from anywhere."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{CSS}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


HEADINGS = ("model", "top-1", "top-5", "loss", "evaluated on", "parameters", "steps", "time", "mean radius")


def facts(run: Run) -> tuple[str, ...]:
    """The row of a run, as the page and the terminal show it."""
    metrics, scores = run.metrics, run.metrics.get("scores") or {}

    def show(key: str, form: str, unit: str = "") -> str:
        return form.format(scores[key]) + unit if scores.get(key) is not None else "–"

    return (
        run.name,
        show("top1", "{:.2f}", " %"),
        show("top5", "{:.2f}", " %"),
        show("loss", "{:.3f}"),
        run.recipe.data.evaluated or "–",
        f"{metrics['parameters']:,}",
        f"{metrics['steps']:,}",
        f"{metrics['seconds']:.0f} s",
        show("radius", "{:.2f}"),
    )


def table(runs: list[Run]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
    rows = []
    for index, run in enumerate(runs):
        name, *cells = map(escape, facts(run))
        key = f'<span class="key run{index % 6}"></span>'
        rows.append(f"<tr><td>{key}{name}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    note = "Time is that of training with its evaluations; the mean radius is that of the tokens that are pooled."
    caption = f"<figcaption>{note}</figcaption>"
    return f'<figure class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table>{caption}</figure>'


def embedding(run: Run) -> str:
    """Where the images lie in hyperbolic space."""
    assert run.seen is not None
    seen, placed = run.seen, place(run.seen)
    count = f"{len(placed.rows)} of {seen.of}" if len(placed.rows) < seen.of else f"all {seen.of}"
    text = (
        f"Each dot is a {run.images} image ({count}): the point that the network pools from its patches, which lives "
        f"in a hyperbolic space of {seen.features.shape[1]} dimensions. The picture is the Poincaré disk of the "
        f"hyperbolic plane of curvature −{1 / placed.k:.2f}; distances from the centre and between dots are the "
        f"model's, as nearly as two dimensions allow (multidimensional scaling; labels are not used). "
        f"Distances from the centre are off by {placed.radius_error:.1%} on average, distances between dots by "
        f"{placed.distance_error:.1%}. Rings are marked with the distance from the centre; the rim is infinitely far. "
        "An outlined dot was classified wrong."
    )
    title = f"{run.images.capitalize()} images in hyperbolic space: {run.name}"
    return (
        f"<h2>{escape(title)}</h2><p>{escape(text)}</p>"
        f'<figure class="wide">{disk(seen, placed)}</figure>'
        f"<h2>Does the radius mean something?</h2>{radii(seen)}"
        f'<figure class="wide">{extremes(seen)}<figcaption>Under each image what the model says and how sure it is; '
        "the frame has the colour of the true class.</figcaption></figure>"
    )


def colophon(runs: list[Run]) -> str:
    """What the numbers were measured with."""
    metrics = runs[0].metrics
    machine = metrics["machine"]
    device = ", ".join(machine["gpus"]) or f"{machine['processor']}, {machine['cores']} cores"
    parts = [
        f"polarvit {metrics['polarvit']}",
        f"commit {metrics['commit']}" if metrics["commit"] else "",
        f"torch {metrics['packages']['torch']}",
        f"seed {metrics['seed']}",
        device,
    ]
    return f"<footer><p>{escape(' · '.join(filter(None, parts)))}</p></footer>"
