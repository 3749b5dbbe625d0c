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
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from importlib.resources import files
from typing import NamedTuple

import numpy as np

import fastfill
from fastfill.evaluate import Comparison, Findings, Sigma
from fastfill.features import Source, replacing
from fastfill.report.charts import charts
from fastfill.report.formats import chance, correlation, mark, percent, points, title
from fastfill.report.tables import Grid, grids_of, reached_at

_SECTIONS: dict[str, tuple[str, str]] = {
    "curves": (
        "Backfilling curves",
        "Quality of the search while the gallery changes from aligned to new vectors; old/old is "
        "the search before the update. Behind each order stands the area under its curve.",
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


def write_html(path: Source, findings: Findings) -> None:
    """Write the page, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(html_page(findings), encoding="utf-8")


def html_page(findings: Findings) -> str:
    """The page as text.

    >>> from fastfill.evaluate import Curve
    >>> page = html_page(Findings("<b>", [Curve("map", [0, 1], [0.4, 0.7], name="</script>")]))
    >>> "<title>&lt;b&gt;</title>" in page, page.count("</script>")
    (True, 2)
    """
    style, script = asset("report.css"), asset("charts.js") + asset("report.js")
    drawn = charts(findings)
    sections = _sections(findings, [chart["id"] for chart in drawn])
    parts = {
        "title": escape(findings.title),
        "generator": f"FastFill {fastfill.__version__}",
        "style": style,
        "style_hash": policy_hash(style),
        "script": script,
        "script_hash": policy_hash(script),
        "headline": headline(findings),
        "contents": "".join(
            f'<a href="#{key}-title">{name}</a>' for key, (name, _) in sections.items()
        ),
        "sections": "\n".join(text for _, text in sections.values()),
        "command": f"<pre>{escape(findings.command)}</pre>" if findings.command else "",
        "facts": _facts(findings.facts),
        "data": embedded({"charts": drawn}),
    }
    return fill(asset("report.html"), parts)


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
    r"""What the first metric says, in two sentences.

    >>> from fastfill.evaluate import Curve
    >>> headline(Findings("", [Curve("map", [0, 1], [0.4, 0.8], "sigma")])).replace("\xa0", " ")
    "<p>Before anything is re-embedded, search has <strong>50.0 %</strong> of the new model's mAP
    of 80.0 %. It has 99 % of it after re-embedding <strong>98.0 %</strong> of the gallery
    (sigma).</p>"
    """
    metric = findings.metrics[0]
    old = {curve.name for curve in findings.curves if set(curve.serving or ()) == {"old"}}
    series = [one for one in findings.series if one.metric == metric]
    lines = [one for one in series if one.name not in old] or series
    ends = max(float(one.mean[-1]) for one in lines)
    end = findings.levels.get(metric, {}).get("new/new", ends)
    if end == 0:
        return f"<p>No query finds anything: {escape(title(metric))} is 0 throughout.</p>"
    starts = sorted({percent(float(one.mean[0]) / end) for one in lines}, key=float)
    to_99 = partial(reached_at, share=0.99, whole=end)
    needed = {one.name: one.estimate(to_99).mean for one in lines}
    first, *others = sorted(
        needed, key=lambda name: (name in findings.cheating, np.nan_to_num(needed[name], nan=2))
    )
    rest = "".join(
        f", {_share(needed[name])} ({escape(name)}"
        f"{', which nobody can know' if name in findings.cheating else ''})"
        for name in others
    )
    text = (
        "Before anything is re-embedded, search has <strong>"
        f"{' to '.join(dict.fromkeys([starts[0], starts[-1]]))} %</strong> of the new model's "
        f"{escape(title(metric))} of {percent(end)} %{_before(findings, metric, end)}. It has 99 % "
        "of it after re-embedding "
        f"<strong>{_share(needed[first])}</strong> of the gallery ({escape(first)}){rest}."
    )
    return f"<p>{text}</p>".replace(" %", "\u00a0%")


def _before(findings: Findings, metric: str, end: float) -> str:
    """The same share of the old search, where that was measured."""
    old = findings.levels.get(metric, {}).get("old/old")
    return "" if old is None else f"; before the update it had {percent(old / end)} %"


def _share(fraction: float) -> str:
    return "more than all" if np.isnan(fraction) else f"{percent(fraction)} %"


def _sections(findings: Findings, present: list[str]) -> dict[str, tuple[str, str]]:
    """Title and markup of each section that has a chart; tables stand below their chart."""
    tables = [
        *map(_grid, grids_of(findings)),
        _comparisons(findings.comparisons),
    ]
    below = {"curves": "".join(tables), "sigma": _taus(findings.sigma)}
    sections = {}
    for key in present:
        name, about = _SECTIONS[key]
        markup = (
            f'<section aria-labelledby="{key}-title"><h2 id="{key}-title">{name}</h2>'
            f'<p>{about}</p><figure id="{key}"><noscript><p>The chart is drawn by a script, '
            f"which is switched off.</p></noscript></figure>{below.get(key, '')}</section>"
        )
        sections[key] = (name, markup)
    return sections


class _HtmlCell(NamedTuple):
    content: str
    kind: str = "number"  # or "text" or "best"

    def markup(self) -> str:
        return f'<td class="{self.kind}">{escape(self.content)}</td>'


def _grid(grid: Grid) -> str:
    rows = [
        (name, [_HtmlCell(str(cell), "best" if cell.best else "number") for cell in row])
        for name, row in grid.rows
    ]
    return _table(grid.title, ["order", *grid.heads], rows, grid.note)


def _comparisons(comparisons: Sequence[Comparison]) -> str:
    if not comparisons:
        return ""
    rows = [
        (
            one.a,
            [
                _HtmlCell(title(one.metric), "text"),
                _HtmlCell(points(one.difference) + mark(one)),
                _HtmlCell(f"{points(one.low)} to {points(one.high)}"),
                _HtmlCell(chance(one.p_value)),
                _HtmlCell(one.b, "text"),
            ],
        )
        for one in comparisons
    ]
    interval = f"{100 * comparisons[0].level:g} % interval"
    heads = ["order", "metric", "gain of area", interval, "p", "compared with"]
    caption = "Paired bootstrap over the queries, in points"
    note = "▲ better and ▼ worse than what it is compared with: the interval does not hold zero."
    return "<h3>Significance</h3>" + _table(caption, heads, rows, note)


def _taus(alignments: Mapping[str, Sigma]) -> str:
    rows = [
        (name, [_HtmlCell(loss, "text"), _HtmlCell(correlation(tau))])
        for name, sigma in alignments.items()
        for loss, tau in sigma.taus.items()
    ]
    return _table("Kendall τ of σ² with the loss", ["alignment", "loss", "τ"], rows)


def _table(
    caption: str, heads: Sequence[str], rows: Sequence[tuple[str, list[_HtmlCell]]], note: str = ""
) -> str:
    """A table whose first column names the rows; texts stand left, numbers right."""
    kinds = ["text", *(cell.kind for cell in rows[0][1])] if rows else ["text"] * len(heads)
    head = "".join(
        f'<th scope="col" class="{"text" if kind == "text" else "number"}">{escape(name)}</th>'
        for name, kind in zip(heads, kinds, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(cell.markup() for cell in cells)}</tr>'
        for name, cells in rows
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    ) + (f'<p class="note">{escape(note)}</p>' if note else "")


def _facts(facts: Mapping[str, str]) -> str:
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f"<dl>{items}</dl>" if items else ""


def asset(name: str) -> str:
    """The text of a file of this room: styles, scripts, the page's frame."""
    return files("fastfill.report").joinpath("assets", name).read_text(encoding="utf-8")


def policy_hash(text: str) -> str:
    """What a content security policy calls this inline text."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
