"""The style sheet of the HTML report: a light and a dark palette, no external resources."""

CSS = """
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1a2230; --soft: #5c6675; --rule: #e2e6ec; --base: #aeb6c2;
  --s1: #2f6fc4; --s2: #17967c; --s3: #d97b16; --s4: #8a63c9; --bad: #c8372d;
  --r1: #8db8ea; --r2: #3f83d3; --r3: #14427f;
  --critical: #b3261e; --warning: #8f5400; --info: #2b5fa8;
  --critical-bg: #fdeceb; --warning-bg: #fdf1e0; --info-bg: #e9f1fc; }
@media (prefers-color-scheme: dark) { :root {
  --page: #10141a; --card: #181e27; --ink: #e6eaf0; --soft: #99a4b3; --rule: #2a323e; --base: #556070;
  --s1: #5b9bed; --s2: #2fb89b; --s3: #eb9a42; --s4: #ab8be6; --bad: #f0695f;
  --r1: #33639f; --r2: #5b9bed; --r3: #c3dcfa;
  --critical: #ff9a92; --warning: #f2b866; --info: #9cc3f7;
  --critical-bg: #3a1d1c; --warning-bg: #35270f; --info-bg: #182b45; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 28px 20px 48px; }
header h1 { margin: 0; font-size: 26px; letter-spacing: -.01em; }
header p, .note, footer { margin: 4px 0 0; color: var(--soft); }
h2 { margin: 34px 0 12px; font-size: 19px; }
h3 { margin: 0 0 6px; font-size: 14px; font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px;
  margin: 22px 0 0; padding: 0; }
.tile, .card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
.tile { padding: 12px 16px; }
.tile dt { color: var(--soft); font-size: 13px; }
.tile dd { margin: 0; font-size: 25px; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile dd small { display: block; line-height: 1.3; font-size: 13px; font-weight: 400; color: var(--soft); }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 14px; }
.card { padding: 14px 16px 10px; min-width: 0; margin: 0; }
svg { display: block; width: 100%; height: auto; }
.tick { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
.grid { stroke: var(--rule); } .base { stroke: var(--base); }
.limit { stroke: var(--bad); stroke-dasharray: 5 4; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.area { opacity: .16; stroke: none; } .hover { fill: transparent; } .hover:hover { fill: var(--ink); fill-opacity: .06; }
.line.s1 { stroke: var(--s1); } .line.s2 { stroke: var(--s2); } .line.s3 { stroke: var(--s3); }
.line.r1 { stroke: var(--r1); } .line.r2 { stroke: var(--r2); } .line.r3 { stroke: var(--r3); }
.bars.s1, .area.s1, .dot.s1 { fill: var(--s1); } .bars.s2, .dot.s2 { fill: var(--s2); }
.bars.s3, .dot.s3 { fill: var(--s3); } .bars.s4 { fill: var(--s4); } .bars.bad { fill: var(--bad); }
.dot.r1 { fill: var(--r1); } .dot.r2 { fill: var(--r2); } .dot.r3 { fill: var(--r3); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; margin: 0 0 6px; padding: 0; list-style: none; font-size: 13px;
  color: var(--soft); }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 3px; margin-right: 6px; vertical-align: -1px; }
i.s1 { background: var(--s1); } i.s2 { background: var(--s2); } i.s3 { background: var(--s3); }
i.s4 { background: var(--s4); } i.bad { background: var(--bad); } i.r1 { background: var(--r1); }
i.r2 { background: var(--r2); } i.r3 { background: var(--r3); }
details { font-size: 13px; margin: 4px 0 2px; } summary { color: var(--soft); cursor: pointer; }
.scroll { overflow-x: auto; max-height: 320px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: 5px 0 5px 18px; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top; }
th { color: var(--soft); font-weight: 600; font-size: 13px; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; }
tr:last-child td { border-bottom: 0; }
.runs td:not(:last-child) { white-space: nowrap; }
.n { text-align: right; white-space: nowrap; } td { overflow-wrap: anywhere; }
pre { white-space: pre-wrap; overflow-wrap: anywhere;
  font: 12px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; margin: 6px 0; }
.findings { list-style: none; margin: 0; padding: 0; display: grid; gap: 10px; }
.finding { border-left: 4px solid var(--info); }
.finding.critical { border-left-color: var(--critical); } .finding.warning { border-left-color: var(--warning); }
.finding p { margin: 6px 0 2px; } .finding .meta { color: var(--soft); font-size: 13px; margin: 0; }
.badge { display: inline-block; padding: 1px 9px; border-radius: 999px; font-size: 12px; font-weight: 600; }
.badge.critical { color: var(--critical); background: var(--critical-bg); }
.badge.warning { color: var(--warning); background: var(--warning-bg); }
.badge.info { color: var(--info); background: var(--info-bg); }
.rate { display: inline-block; width: 64px; height: 8px; border-radius: 4px; background: var(--rule); vertical-align: 1px;
  margin-right: 8px; overflow: hidden; }
.rate b { display: block; height: 100%; background: var(--s2); }
.summary { margin: 0 0 12px; color: var(--soft); } .summary b { color: var(--ink); font-weight: 600; }
.gap { margin-top: 14px; } .bad-text { color: var(--critical); }
footer { margin-top: 36px; font-size: 13px; }
@media print { body { background: none; } .card, .tile { break-inside: avoid; } .hover { display: none; } }
"""
