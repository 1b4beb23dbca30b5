"""How a report looks, on a screen of any width and on paper."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 62rem; color: #1a1a1a; background: #fff;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
header { border-bottom: 2px solid #1a1a1a; margin-bottom: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .4rem; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .5rem; border-bottom: 1px solid #bbb; padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
p, ul, ol, dl { margin: .5rem 0; }
p, li, dd { max-width: 46rem; }
.kind { color: #555; margin: 0; font-size: .95rem; }
.status { display: inline-block; border: 1px solid #0072b2; border-radius: .3rem; padding: .1rem .6rem;
  margin: 0 0 .9rem; color: #00466e; background: #eef6fb; }
.warning { border-left: .35rem solid #d55e00; background: #fdf1ea; padding: .5rem .9rem; margin: 1rem 0; }
.note, .wide + p.note { color: #555; font-size: .88rem; }
dl { display: grid; grid-template-columns: minmax(9rem, 14rem) 1fr; gap: .3rem 1rem; }
dt { color: #555; }
dd { margin: 0; }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0; border-bottom: 1px solid #ddd; }
th { border-bottom: 1px solid #1a1a1a; font-weight: 600; vertical-align: bottom; }
.number { text-align: right; white-space: nowrap; }
td.here, .here { background: #eef6fb; font-weight: 600; }
code, pre { font: .86em/1.45 ui-monospace, "DejaVu Sans Mono", monospace; }
pre { background: #f5f5f5; padding: .6rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1rem 2rem; }
figure { margin: .5rem 0; }
figcaption { font-weight: 600; font-size: .95rem; margin-bottom: .2rem; }
svg { display: block; width: 100%; max-width: 32rem; height: auto; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1a1a1a; }
svg text.halo { paint-order: stroke; stroke: #fff; stroke-width: 3px; }
code.long { word-break: break-all; }
details pre { font-size: .72rem; }
@media (max-width: 34rem) {
  body { padding: .8rem; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .5rem; }
  svg text { font-size: 12.5px; }
  .cards table, .cards tbody, .cards tr, .cards td { display: block; width: 100%; }
  .cards thead { display: none; }
  .cards tr { border-bottom: 1px solid #999; padding: .4rem 0; }
  .cards td { border: 0; padding: .1rem 0; display: flex; gap: 1rem; text-align: left; white-space: normal; }
  .cards td:empty { display: none; }
  .cards td::before { content: attr(data-label); color: #555; flex: 0 0 8.5rem; }
  .cards td > span { min-width: 0; overflow-wrap: anywhere; }
  .cards td:first-child { font-weight: 600; }
}
@media print {
  @page { margin: 16mm; }
  html { font-size: 10pt; }
  body { padding: 0; max-width: none; font-size: 1rem; }
  p, li, dd { max-width: none; }
  h2, h3, figcaption { break-after: avoid; }
  tr, figure, .warning, dl, li { break-inside: avoid; }
  thead { display: table-header-group; }
  .wide { overflow: visible; }
  .pictures { grid-template-columns: 1fr 1fr; }
  table { font-size: 8.5pt; }
  th, td { padding-right: .5rem; }
  details { display: none; }
  .status, .warning, .here, pre { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
