"""One self-contained `report.html`: interactive curves, tables and where they come from.

The page needs no network and no other file. Every name is escaped, the data is embedded as JSON
that cannot end its script element, and a content security policy lets the page run its own script
and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from html import escape
from importlib.resources import files

import fastfill
from fastfill.features import Source, replacing
from fastfill.report.charts import charts
from fastfill.report.findings import Difference, Findings, Sigma
from fastfill.report.series import Series, chance, fraction_to, metrics_of, percent, points, title
from fastfill.report.tables import Grid, grids

_SECTIONS: dict[str, tuple[str, str]] = {
    "curves": (
        "Backfilling curves",
        "Quality of the search with the new model while the gallery changes from aligned to new "
        "vectors. Behind each order stands the area under its curve.",
    ),
    "timeline": (
        "Against time or cost",
        "The same curves against what the backfill takes, beside an offline backfill, where the "
        "old model serves until all is done, and no update at all.",
    ),
    "flips": (
        "Flips",
        "Queries that fail at 0 % and succeed now (+), and that succeeded and now fail (−).",
    ),
    "groups": ("Groups", "The quality that the queries of each group get."),
    "gaps": ("Gap between groups", "The best group's quality minus the worst group's."),
    "served": (
        "Which groups are served first",
        "How much of each group is backfilled; on the diagonal a group gets its share.",
    ),
    "sigma": (
        "Predicted σ² against the loss",
        "Each dot is an item of the gallery: what the alignment predicts of its error, and what "
        "the error is.",
    ),
}
_TEXT = {"metric": " class=text", "compared with": " class=text"}


def write_html(path: Source, findings: Findings) -> None:
    """Write the page, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(html_page(findings), encoding="utf-8")


def html_page(findings: Findings) -> str:
    """The page as text.

    >>> from fastfill.evaluate.curves import Curve
    >>> page = html_page(Findings("<b>", [Curve("map", [0, 1], [0.4, 0.7], name="</script>")]))
    >>> "<title>&lt;b&gt;</title>" in page, page.count("</script>")
    (True, 2)
    """
    style, script = _asset("report.css"), _asset("report.js")
    drawn = charts(findings)
    sections = _sections(findings, [chart["id"] for chart in drawn])
    parts = {
        "title": escape(findings.title),
        "generator": f"FastFill {fastfill.__version__}",
        "style": style,
        "style_hash": _hash(style),
        "script": script,
        "script_hash": _hash(script),
        "headline": headline(findings),
        "contents": "".join(f'<a href="#{key}-title">{name}</a>' for key, (name, _) in sections),
        "sections": "\n".join(text for _, (_, text) in sections),
        "command": f"<pre>{escape(findings.command)}</pre>" if findings.command else "",
        "facts": _facts(findings.facts),
        "data": embedded({"charts": drawn}),
    }
    return fill(_asset("report.html"), parts)


def fill(template: str, parts: Mapping[str, str]) -> str:
    """Put the parts in their places, in one pass: what is put in is never looked at again.

    >>> fill("{{a}} {{b}}", {"a": "{{b}}", "b": "!"})
    '{{b}} !'
    """
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def embedded(value: object) -> str:
    r"""JSON that is safe inside a script element.

    >>> embedded({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def headline(findings: Findings) -> str:
    """What the first metric says, in two sentences.

    >>> from fastfill.evaluate.curves import Curve
    >>> headline(Findings("", [Curve("map", [0, 1], [0.4, 0.8], name="sigma")]))
    '<p>Before anything is re-embedded, search with the new model has <strong>50.0 %</strong> of
    its final mAP of 80.0 %. It has 99 % of it after re-embedding <strong>98.0 %</strong> of the
    gallery (sigma).</p>'
    """
    series = Series.group(findings.curves)
    metric = metrics_of(series)[0]
    lines = [one for one in series if one.metric == metric]
    end = max(float(one.mean[-1]) for one in lines)
    if end == 0:
        return f"<p>No query finds anything: {escape(title(metric))} is 0 throughout.</p>"
    starts = sorted({percent(float(one.mean[0]) / end) for one in lines}, key=float)
    needed = sorted(
        (one.estimate(partial(fraction_to, share=0.99)).mean, one.name) for one in lines
    )
    after = ", ".join(
        f"<strong>{percent(share)} %</strong> of the gallery ({escape(name)})"
        if place == 0
        else f"{percent(share)} % ({escape(name)})"
        for place, (share, name) in enumerate(needed)
    )
    return (
        "<p>Before anything is re-embedded, search with the new model has <strong>"
        f"{' to '.join(dict.fromkeys([starts[0], starts[-1]]))} %</strong> of its final "
        f"{escape(title(metric))} of {percent(end)} %. It has 99 % of it after re-embedding "
        f"{after}.</p>"
    )


def _sections(findings: Findings, present: list[str]) -> list[tuple[str, tuple[str, str]]]:
    extras: dict[str, Callable[[], str]] = {
        "curves": lambda: (
            "".join(map(_table, grids(findings.curves, findings.levels, findings.marks)))
            + _differences(findings.differences)
        ),
        "sigma": lambda: _taus(findings.sigma),
    }
    found = []
    for key in present:
        name, about = _SECTIONS[key]
        extra = extras[key]() if key in extras else ""
        text = (
            f'<section aria-labelledby="{key}-title"><h2 id="{key}-title">{name}</h2>'
            f"<p>{about}</p><figure id={key!r}><noscript><p>The chart is drawn by a script, which "
            f"is switched off.</p></noscript></figure>{extra}</section>"
        )
        found.append((key, (name, text)))
    return found


def _table(grid: Grid) -> str:
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("order", *grid.heads))
    rows = []
    for name, cells in grid.rows:
        numbers = "".join(
            f"<td{' class=best' if cell.best else ''}>{escape(str(cell))}</td>" for cell in cells
        )
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{numbers}</tr>')
    note = f'<p class="note">{escape(grid.note)}</p>' if grid.note else ""
    return (
        f'<div class="scroll"><table><caption>{escape(grid.title)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>{note}"
    )


def _differences(differences: Iterable[Difference]) -> str:
    rows = [
        f'<tr><th scope="row">{escape(one.name)}</th><td class=text>{escape(title(one.metric))}'
        f"</td><td>{points(one.gain)}{one.mark}</td><td>{points(one.low)} to {points(one.high)}"
        f"</td><td>{chance(one.p)}</td><td class=text>{escape(one.baseline)}</td></tr>"
        for one in differences
    ]
    if not rows:
        return ""
    heads = ("order", "metric", "gain of area", "95 % interval", "p", "compared with")
    return (
        '<h3>Significance</h3><div class="scroll"><table><caption>Paired bootstrap over the '
        "queries, in points</caption><thead><tr>"
        + "".join(f'<th scope="col"{_TEXT.get(head, "")}>{head}</th>' for head in heads)
        + f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        '<p class="note">▲ better and ▼ worse than the order it is compared with: the interval '
        "does not hold zero.</p>"
    )


def _taus(alignments: Mapping[str, Sigma]) -> str:
    rows = [
        f'<tr><th scope="row">{escape(name)}</th><td class=text>{escape(loss)}</td>'
        f"<td>{tau:.3f}</td></tr>"
        for name, sigma in alignments.items()
        for loss, tau in sigma.taus.items()
    ]
    return (
        '<div class="scroll"><table><caption>Kendall τ of σ² with the loss</caption><thead><tr>'
        '<th scope="col">alignment</th><th scope="col" class=text>loss</th><th scope="col">τ</th>'
        f"</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _facts(facts: Mapping[str, str]) -> str:
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f"<dl>{items}</dl>" if items else ""


def _asset(name: str) -> str:
    return files("fastfill.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What a content security policy calls this inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
