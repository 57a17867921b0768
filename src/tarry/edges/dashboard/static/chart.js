// <tarry-chart>: draws the table inside it with uPlot, in a shadow tree, so that a refresh of the page morphs the table and
// leaves the drawing alone. All charts of a page share the crosshair; dragging chooses the time range.

const FORMATS = {
  count: (value) => short(value),
  rate: (value) => `${short(value)}/s`,
  seconds: (value) => {
    if (value < 1) return value === 0 ? "0" : `${short(value * 1000)} ms`;
    if (value < 60) return `${short(value)} s`;
    return value < 3600 ? `${short(value / 60)} min` : `${short(value / 3600)} h`;
  },
};
// Steps of an axis of durations: parts of a minute or an hour, where decimal ones would be odd.
const STEPS = [...[0.001, 0.01, 0.1].flatMap((unit) => [unit, 2 * unit, 5 * unit]), 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400, 172800, 604800];

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return `${+value.toPrecision(3)}`;
}

// Hours and minutes, and the day where a range has several.
function clock(seconds, local, withDay) {
  const zone = local ? undefined : "UTC";
  const day = withDay ? { day: "2-digit", month: "2-digit" } : {};
  return new Date(seconds * 1000).toLocaleString("en-GB", { hour: "2-digit", minute: "2-digit", timeZone: zone, ...day });
}

// Without a crosshair the legend shows the newest value.
function newest(values) {
  return values.findLastIndex((value) => value !== null && value !== undefined);
}

// A value between two gaps is no line, so it is drawn as a point.
function isolated(plot, series) {
  const values = plot.data[series];
  return values.flatMap((value, at) => (value !== null && (values[at - 1] ?? null) === null && (values[at + 1] ?? null) === null ? [at] : []));
}

// The part of a chart that was dragged over becomes the time range of the page.
function choose(plot) {
  if (plot.select.width < 8) return;
  const [from, until] = [plot.select.left, plot.select.left + plot.select.width].map((at) => new Date(plot.posToVal(at, "x") * 1000).toISOString().replace(/:\d\d\.\d+Z/, "Z"));
  const to = new URL(location.href);
  to.searchParams.set("range", `${from}/${from === until ? new Date(Date.parse(from) + 60_000).toISOString().replace(/:\d\d\.\d+Z/, "Z") : until}`);
  to.searchParams.delete("after");
  location.assign(to);
}

// Anomalies, pauses and deploys: a bar at the top, and a faint band behind the lines. Marks of one tone that overlap are one.
function drawMarks(plot, tones) {
  const { ctx, bbox } = plot;
  const [right, thick] = [bbox.left + bbox.width, 3 * devicePixelRatio];
  ctx.save();
  for (const [tone, colour] of Object.entries(tones)) {
    const marks = [...document.querySelectorAll(`#chart-marks [data-tone=${tone}]`)]
      .map((mark) => [mark.dataset.from, mark.dataset.until].map((at) => Math.min(right, Math.max(bbox.left, plot.valToPos(Number(at), "x", true)))))
      .sort((one, other) => one[0] - other[0]);
    ctx.fillStyle = colour;
    let end = bbox.left;
    for (const [from, until] of marks) {
      const x = Math.min(Math.max(from, end), right - thick);
      const width = Math.max(until - x, x > end || end === bbox.left ? thick : 0);
      ctx.globalAlpha = 0.08;
      ctx.fillRect(x, bbox.top, width, bbox.height);
      ctx.globalAlpha = 0.9;
      ctx.fillRect(x, bbox.top, width, thick);
      end = Math.max(end, x + width);
    }
  }
  ctx.restore();
}

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

class TarryChart extends HTMLElement {
  connectedCallback() {
    if (!this.shadowRoot) {
      this.attachShadow({ mode: "open" });
      const sheet = document.createElement("link");
      sheet.rel = "stylesheet";
      sheet.href = document.body.dataset.chartCss;
      this.box = document.createElement("div");
      this.box.setAttribute("aria-hidden", "true");
      const own = new CSSStyleSheet();
      own.replaceSync(":host{display:block} .u-legend{font-size:12px;text-align:left} .u-legend.u-inline .u-series{padding-right:10px} .u-legend.u-inline .u-series>*{padding:1px 2px} .u-legend .u-marker{width:9px;height:9px;border-radius:2px;border-width:2px} .u-legend th,.u-legend td{font-weight:400}");
      this.shadowRoot.adoptedStyleSheets = [own];
      this.shadowRoot.append(sheet, this.box, document.createElement("slot"));
    }
    this.observer = new MutationObserver(() => this.update());
    this.observer.observe(this, { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ["data-start"] });
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this);
    this.restyle = () => this.draw();
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.scheme.addEventListener("change", this.restyle);
    document.addEventListener("tarry:theme", this.restyle);
    document.addEventListener("tarry:zone", this.restyle);
    this.draw();
  }

  disconnectedCallback() {
    this.observer.disconnect();
    this.sizes.disconnect();
    this.scheme.removeEventListener("change", this.restyle);
    document.removeEventListener("tarry:theme", this.restyle);
    document.removeEventListener("tarry:zone", this.restyle);
    this.plot?.destroy();
    this.plot = null;
  }

  read() {
    const rows = [...this.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")].map((cell) => (cell.textContent === "" ? null : Number(cell.textContent))));
    const start = Number(this.dataset.start);
    const step = Number(this.dataset.step);
    const times = rows.map((_, at) => start + at * step);
    const series = (rows[0] ?? []).map((_, column) => rows.map((row) => row[column]));
    this.own = series;
    if (!("stacked" in this.dataset)) return [times, ...series];
    const below = times.map(() => 0);
    return [times, ...series.map((values) => values.map((value, at) => (value === null ? null : (below[at] += value))))];
  }

  update() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.plot?.setData(this.read()));
  }

  resize() {
    if (this.plot && this.clientWidth) this.plot.setSize({ width: this.clientWidth, height: this.height });
  }

  get height() {
    return Number(this.dataset.height ?? 170);
  }

  draw() {
    if (!window.uPlot || !this.clientWidth) { requestAnimationFrame(() => this.isConnected && !this.plot && this.draw()); return; }
    this.plot?.destroy();
    const names = [...this.querySelectorAll("thead th")].slice(1).map((cell) => cell.textContent);
    const tones = this.dataset.tones.trim().split(" ");
    const stacked = "stacked" in this.dataset;
    const format = FORMATS[this.dataset.unit];
    const marked = { dead: style("--dead"), paused: style("--paused"), delayed: style("--delayed") };
    const local = document.documentElement.dataset.zone === "browser";
    const line = style("--line"), soft = style("--soft");
    const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 }, font: "11px system-ui", gap: 3 };
    this.plot = new uPlot({
      width: this.clientWidth,
      height: this.height,
      tzDate: (seconds) => (local ? new Date(seconds * 1000) : uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC")),
      // Other charts follow the crosshair only: the choice of a time range is one navigation.
      cursor: { sync: { key: "tarry", filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } }, points: { size: 6 }, drag: { x: true, y: false, setScale: false } },
      hooks: { setSelect: [choose], drawAxes: [(plot) => drawMarks(plot, marked)] },
      legend: { live: true },
      bands: stacked ? names.slice(1).map((_, at) => ({ series: [at + 2, at + 1] })) : "band" in this.dataset ? [{ series: [names.length, 1], fill: `${style(`--${tones[1]}`)}2e` }] : [],
      padding: [8, Number(this.dataset.step) > 3_000 ? 36 : 20, 0, 0],
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, size: 28, space: Number(this.dataset.step) > 3_000 ? 80 : 60, values: (_, splits) => splits.map((at) => clock(at, local, Number(this.dataset.step) > 3_000).replace(", 00:00", "")) }, { ...axis, size: 54, ...(this.dataset.unit === "seconds" ? { incrs: STEPS } : {}), values: (_, splits) => splits.map(format) }],
      series: [{ label: local ? "Time" : "UTC", value: (plot, at) => clock(at ?? plot.data[0].at(-1), local, Number(this.dataset.step) > 3_000) }, ...names.map((name, at) => ({
        label: name,
        stroke: style(`--${tones[at]}`),
        width: stacked ? 0 : 1.6,
        fill: stacked ? `${style(`--${tones[at]}`)}cc` : undefined,
        points: { show: true, size: 6, fill: style(`--${tones[at]}`), filter: isolated },
        spanGaps: stacked,
        value: (plot, _, series, index) => {
          const at = index ?? newest(plot.data[series]);
          const value = this.own[series - 1][at];
          return value === null || value === undefined ? "–" : format(value);
        },
      }))],
    }, this.read(), this.box);
  }
}

customElements.define("tarry-chart", TarryChart);
