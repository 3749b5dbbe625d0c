"use strict";
// Draws charts from plain data: for the report, and for the live page. No library, no network.
// A chart has views to choose from; a view has lines, or dots, and names for its axes.
const { Chart, make } = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = { top: 10, right: 14, bottom: 42, left: 52 };

  const make = (tag, attributes = {}, ...children) => {
    const svg = ["svg", "g", "path", "line", "text", "circle"].includes(tag);
    const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const number = (value) =>
    Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
  const fixed = (value) => value.toFixed(1);

  // --- scales ---------------------------------------------------------------------------

  const scale = (low, high, from, to, log) => {
    const f = log ? Math.log10 : (v) => v;
    const [a, b] = [f(low), f(high) === f(low) ? f(low) + 1 : f(high)];
    const place = (v) => from + ((f(v) - a) / (b - a)) * (to - from);
    place.invert = (p) => {
      const v = a + ((p - from) / (to - from)) * (b - a);
      return log ? 10 ** v : v;
    };
    const about = Math.abs(to - from) / (to > from ? 75 : 50);
    place.ticks = log ? logTicks(a, b, about) : ticks(low, high, about);
    return place;
  };
  const ticks = (low, high, about) => {
    const rough = (high - low || 1) / Math.max(2, Math.min(about, 10));
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
    return found;
  };
  const logTicks = (a, b, about) => {
    const every = Math.max(1, Math.ceil((b - a) / about));
    const steps = (b - a) * 3 < about ? [1, 2, 5] : [1];
    const found = [];
    for (let k = Math.floor(a); k <= b; k += every) found.push(...steps.map((m) => m * 10 ** k));
    return found.filter((v) => Math.log10(v) >= a && Math.log10(v) <= b);
  };
  const extent = (values) =>
    values.reduce(([l, h], v) => (v === null ? [l, h] : [Math.min(l, v), Math.max(h, v)]), [Infinity, -Infinity]);

  // A line between its points, straight; nothing outside of them.
  const valueAt = (line, x) => {
    const same = line.x.lastIndexOf(x); // the last: where a line jumps, what it jumps to
    if (same >= 0) return line.y[same];
    const k = line.x.findIndex((v) => v > x);
    if (k < 1) return null;
    const [x0, x1] = [line.x[k - 1], line.x[k]];
    if (line.y[k - 1] === null || line.y[k] === null) return null;
    return line.y[k - 1] + ((line.y[k] - line.y[k - 1]) * (x - x0)) / (x1 - x0);
  };

  // --- one chart ------------------------------------------------------------------------

  class Chart {
    constructor(host, chart) {
      this.host = host;
      this.chart = chart;
      this.view = chart.views[0];
      this.hidden = new Set();
      this.lit = null;
      this.zero = false;
      this.at = null; // index into this.stops
      this.build();
      new ResizeObserver(() => this.draw()).observe(this.plot);
    }

    build() {
      this.plot = make("div", { class: "chart" });
      this.legend = make("ul", { class: "legend" });
      this.tip = make("div", { class: "tip", hidden: "" });
      this.live = make("div", { class: "unseen", "aria-live": "polite" });
      this.host.replaceChildren(this.controls(), this.plot, this.tip, this.legend, this.live);
      this.plot.addEventListener("pointermove", (event) => this.point(event));
      this.plot.addEventListener("pointerdown", (event) => this.point(event));
      this.plot.addEventListener("pointerleave", () => this.leave());
      this.names();
      this.draw();
    }

    // Other data of the same chart: what is chosen, hidden and pointed at stays.
    update(chart) {
      const same = (view) => view.keys.join("\n") === this.view.keys.join("\n");
      const choices = (one) => JSON.stringify(one.views.map((view) => view.keys));
      const names = (view) => JSON.stringify((view.lines || []).map((line) => line.label || line.name));
      const [choicesBefore, namesBefore] = [choices(this.chart), names(this.view)];
      this.chart = chart;
      this.view = chart.views.find(same) || chart.views[0];
      if (choices(chart) !== choicesBefore) return this.build();
      if (names(this.view) !== namesBefore) this.names();
      return this.draw();
    }

    controls() {
      const box = make("div", { class: "controls" });
      this.chart.choices.forEach((choice, place) => {
        const options = [...new Set(this.chart.views.map((view) => view.keys[place]))];
        if (options.length < 2) return;
        const set = make("fieldset", {}, make("legend", { class: "unseen" }, choice));
        options.forEach((option, k) => {
          const input = make("input", { type: "radio", name: `${this.chart.id}-${place}`, value: k });
          input.checked = k === 0;
          input.addEventListener("change", () => this.choose(place, option));
          set.append(make("label", {}, input, make("span", {}, option)));
        });
        box.append(set);
      });
      const lowest = extent(this.chart.views.flatMap((view) => (view.lines || []).flatMap((line) => line.y)))[0];
      if (!this.chart.dots && lowest > 0) {
        const input = make("input", { type: "checkbox" });
        input.addEventListener("change", () => {
          this.zero = input.checked;
          this.draw();
        });
        box.append(make("label", { class: "check" }, input, "axis from 0"));
      }
      return box;
    }

    choose(place, option) {
      const keys = this.view.keys.map((key, k) => (k === place ? option : key));
      const fits = (view) => view.keys.filter((key, k) => key === keys[k]).length;
      const able = this.chart.views.filter((view) => view.keys[place] === option);
      this.view = able.reduce((best, view) => (fits(view) > fits(best) ? view : best));
      this.leave();
      this.names();
      this.draw();
    }

    // The legend: each name is a switch.
    names() {
      this.legend.replaceChildren();
      for (const line of this.view.lines || []) {
        const button = make("button", { type: "button", "aria-pressed": String(!this.hidden.has(line.name)) });
        button.append(swatch(line), line.label || line.name);
        button.addEventListener("click", () => {
          if (!this.hidden.delete(line.name)) this.hidden.add(line.name);
          button.setAttribute("aria-pressed", String(!this.hidden.has(line.name)));
          this.draw();
        });
        const light = (name) => () => {
          this.lit = name;
          this.draw();
        };
        button.addEventListener("pointerenter", light(line.name));
        button.addEventListener("pointerleave", light(null));
        this.legend.append(make("li", {}, button));
      }
    }

    shown() {
      return this.view.lines.filter((line) => !this.hidden.has(line.name));
    }

    draw() {
      const width = Math.max(240, this.plot.clientWidth);
      const height = Math.round(Math.min(420, Math.max(250, width * (this.chart.dots ? 0.62 : 0.5))));
      const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img" });
      svg.setAttribute("aria-label", `${this.view.keys.join(", ")}. ${this.view.about || ""} ${this.chart.help}`);
      svg.addEventListener("keydown", (event) => this.key(event));
      svg.addEventListener("blur", () => this.leave());
      if (this.chart.dots) this.dots(svg, width, height);
      else this.lines(svg, width, height);
      const focused = this.plot.contains(document.activeElement);
      this.plot.replaceChildren(svg);
      if (focused) svg.focus({ preventScroll: true });
      this.cross();
    }

    frame(svg, width, height, [x0, x1], [y0, y1], log) {
      const bottom = height - MARGIN.bottom;
      this.x = scale(x0, x1, MARGIN.left, width - MARGIN.right, log);
      this.y = scale(y0, y1, bottom, MARGIN.top, log);
      this.box = { width, height, bottom };
      for (const v of this.y.ticks) {
        const y = this.y(v);
        svg.append(make("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
        svg.append(make("text", { x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" }, number(v)));
      }
      for (const v of this.x.ticks) {
        const x = this.x(v);
        svg.append(make("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 5 }));
        svg.append(make("text", { x, y: bottom + 19, "text-anchor": "middle" }, number(v)));
      }
      svg.append(make("line", { class: "axis", x1: MARGIN.left, x2: width - MARGIN.right, y1: bottom, y2: bottom }));
      const middle = (MARGIN.left + width - MARGIN.right) / 2;
      svg.append(make("text", { x: middle, y: height - 5, "text-anchor": "middle" }, this.view.x));
      const side = `translate(13 ${(MARGIN.top + bottom) / 2}) rotate(-90)`;
      svg.append(make("text", { transform: side, "text-anchor": "middle" }, this.view.y));
    }

    lines(svg, width, height) {
      const lines = this.shown();
      const xs = this.view.span || extent(this.view.lines.flatMap((line) => line.x));
      // Views of the same quantity share their axis, so that the eye can compare them.
      const alike = this.chart.views.filter((view) => view.y === this.view.y).flatMap((view) => view.lines);
      const open = alike.filter((line) => !this.hidden.has(line.name));
      const all = open.flatMap((line) => [...line.y, ...(line.low || []), ...(line.high || [])]);
      let [low, high] = extent(all.length ? all : [0, 100]);
      const levels = this.view.levels || [];
      [low, high] = extent([low, high, ...levels.map((one) => one.value)]);
      const air = (high - low || 1) * 0.06;
      low = this.zero ? Math.min(0, low) : low - (low === 0 ? 0 : air);
      this.frame(svg, width, height, xs, [low, high + air]);
      this.stops = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
      for (const level of levels) {
        const y = this.y(level.value);
        svg.append(make("line", { class: `level ${level.name.startsWith("old") ? "d2" : "d1"}`, x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
        svg.append(make("text", { x: width - MARGIN.right, y: y - 5, "text-anchor": "end" }, `${level.name} ${fixed(level.value)}`));
      }
      for (const line of lines) svg.append(...this.curve(line));
    }

    curve(line) {
      const faded = this.lit !== null && this.lit !== line.name ? " faded" : "";
      const path = (xs, ys) => {
        let d = "";
        xs.forEach((x, k) => {
          if (ys[k] !== null) d += `${d && ys[k - 1] !== null ? "L" : "M"}${this.x(x).toFixed(2)} ${this.y(ys[k]).toFixed(2)}`;
        });
        return d;
      };
      const parts = [];
      if (line.low) {
        const back = path([...line.x].reverse(), [...line.low].reverse()).replace("M", "L");
        parts.push(make("path", { class: `band ${line.colour}${faded}`, d: `${path(line.x, line.high)}${back}Z` }));
      }
      parts.push(make("path", { class: `curve ${line.colour} ${line.dash}${faded}`, d: path(line.x, line.y) }));
      if (line.points) {
        line.x.forEach((x, k) => {
          if (line.y[k] !== null) parts.push(make("circle", { class: `mark ${line.colour}${faded}`, cx: this.x(x), cy: this.y(line.y[k]), r: 2.5 }));
        });
      }
      return parts;
    }

    dots(svg, width, height) {
      const view = this.view;
      const around = ([low, high]) => {
        const air = view.log ? (high / low) ** 0.03 : (high - low) * 0.03;
        return view.log ? [low / air, high * air] : [low - air, high + air];
      };
      this.frame(svg, width, height, around(extent(view.xs)), around(extent(view.ys)), view.log);
      const group = make("g", { class: "c0" });
      view.xs.forEach((x, k) => {
        group.append(make("circle", { class: "dot", cx: this.x(x).toFixed(1), cy: this.y(view.ys[k]).toFixed(1), r: 2 }));
      });
      svg.append(group);
    }

    // --- pointer and keyboard --------------------------------------------------------------

    point(event) {
      const box = this.plot.getBoundingClientRect();
      const [px, py] = [event.clientX - box.left, event.clientY - box.top];
      if (this.chart.dots) return this.nearest(px, py);
      const x = this.x.invert(px);
      const gaps = this.stops.map((stop) => Math.abs(stop - x));
      this.at = gaps.length ? gaps.indexOf(Math.min(...gaps)) : null;
      this.cross();
    }

    key(event) {
      if (event.key === "Escape") return this.leave();
      const count = this.chart.dots ? this.view.xs.length : this.stops.length;
      const from = this.at ?? (event.key === "ArrowLeft" ? count : -1);
      const to = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 0, End: count - 1 }[event.key];
      if (to === undefined || !count) return;
      event.preventDefault();
      this.at = Math.min(Math.max(to, 0), count - 1);
      this.cross();
      this.live.textContent = this.tip.innerText.replace(/\s+/g, " ");
    }

    nearest(px, py) {
      let best = 400; // within 20 pixels
      this.at = null;
      this.view.xs.forEach((x, k) => {
        const far = (this.x(x) - px) ** 2 + (this.y(this.view.ys[k]) - py) ** 2;
        if (far < best) [best, this.at] = [far, k];
      });
      this.cross();
    }

    leave() {
      this.at = null;
      this.cross();
    }

    // The line under the pointer, and what every curve has there.
    cross() {
      const svg = this.plot.firstChild;
      svg.querySelector(".here")?.remove();
      this.tip.hidden = this.at === null;
      if (this.at === null) return;
      const here = make("g", { class: "here" });
      svg.append(here);
      if (this.chart.dots) return this.crossDot(here);
      this.at = Math.min(this.at, this.stops.length - 1);
      const stop = this.stops[this.at];
      const x = this.x(stop);
      here.append(make("line", { class: "cross", x1: x, x2: x, y1: MARGIN.top, y2: this.box.bottom }));
      const values = this.shown().map((line) => ({ line, value: valueAt(line, stop) })).filter((one) => one.value !== null);
      values.sort((a, b) => b.value - a.value);
      const table = make("table");
      for (const { line, value } of values) {
        here.append(make("circle", { class: `mark ${line.colour}`, cx: x, cy: this.y(value), r: 3.5 }));
        const k = line.x.indexOf(stop);
        const spread = line.low && k >= 0 ? ` ± ${fixed((line.high[k] - line.low[k]) / 2)}` : "";
        table.append(make("tr", {}, make("td", {}, swatch(line)), make("td", {}, line.name), make("td", {}, fixed(value) + spread)));
      }
      const high = values.filter((one) => this.y(one.value) < this.box.bottom / 2).length * 2 > values.length;
      this.show(x, high, make("strong", {}, `${number(stop)} ${this.view.unit}`), table);
    }

    crossDot(here) {
      const [vx, vy] = [this.view.xs[this.at], this.view.ys[this.at]];
      const [x, y] = [this.x(vx), this.y(vy)];
      here.append(make("circle", { class: "mark c1", cx: x, cy: y, r: 4.5 }));
      const table = make("table");
      for (const [name, value] of [[this.view.x, vx], [this.view.y, vy]]) {
        table.append(make("tr", {}, make("td", {}, name), make("td", {}, number(value))));
      }
      this.show(x, y < this.box.bottom / 2, make("strong", {}, `item ${this.view.items[this.at]}`), table);
    }

    // Beside the line, and low where the curves are high.
    show(x, low, ...content) {
      this.tip.replaceChildren(...content);
      const left = x > this.box.width / 2 ? x - this.tip.offsetWidth - 12 : x + 12;
      this.tip.style.left = `${Math.max(0, Math.min(left, this.box.width - this.tip.offsetWidth))}px`;
      const top = low ? this.box.bottom - this.tip.offsetHeight - 8 : MARGIN.top;
      this.tip.style.top = `${this.plot.offsetTop + Math.max(0, top)}px`;
    }
  }

  const swatch = (line) =>
    make("svg", { class: `swatch ${line.colour}`, viewBox: "0 0 26 8", "aria-hidden": "true" },
      make("line", { class: line.dash, x1: 0, x2: 26, y1: 4, y2: 4 }));

  return { Chart, make };
})();
