"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("data").textContent);
  const touch = matchMedia("(pointer: coarse)").matches;
  const MINUTE = 60_000, HOUR = 60 * MINUTE;
  const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10080, 20160, 43200].map((n) => n * MINUTE);
  const PAD = { left: 44, right: 14, top: 8, bottom: 50 };
  const whole = figures.find(({ axis }) => axis === "time").range;
  let range = whole;

  const make = (tag, attributes, parent, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return parent.appendChild(node);
  };
  const element = (tag, name, parent, text = "") => {
    const node = document.createElement(tag);
    node.className = name;
    node.textContent = text;
    return parent.appendChild(node);
  };
  const colour = (name) => `var(${name})`;

  const nice = (span, count, steps) => {
    if (steps) return steps.find((step) => span / step <= count) ?? steps.at(-1);
    const power = 10 ** Math.floor(Math.log10(span / count));
    return [1, 2, 5, 10].map((n) => n * power).find((step) => span / step <= count);
  };
  const ticks = (from, to, step) => {
    const found = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
    return found;
  };
  const iso = (at) => new Date(at).toISOString();
  const day = (at) => new Date(at).toLocaleDateString("en", { month: "short", day: "numeric", timeZone: "UTC" });
  const shownAt = (figure, at) => figure.axis === "time" ? `${day(at)}, ${iso(at).slice(11, 16)} UTC` : `${Math.round(at)} s`;

  // A value holds from its x to the next one's.
  const steps = (xs, ys, x, y) => xs.map((at, i) => i ? `H${x(at)}V${y(ys[i])}` : `M${x(at)},${y(ys[i])}`).join("");
  const back = (xs, ys, x, y) => xs.map((_, i) => xs.length - 1 - i)
    .map((i) => i ? `V${y(ys[i - 1])}H${x(xs[i - 1])}` : "").join("");
  const held = (layer, at) => {
    const i = layer.x.findLastIndex((x) => x <= at);
    return i < 0 ? null : layer.y[i] - (layer.base?.[i] ?? 0);
  };
  const SYMBOLS = { circle: "M-4,0a4,4 0 1 0 8,0a4,4 0 1 0 -8,0", cross: "M-4,-4L4,4M4,-4L-4,4", diamond: "M0,-5L5,0L0,5L-5,0Z" };

  const draw = (figure) => {
    // Labels of moments stand in rows above the picture.
    const moments = figure.layers.find(({ kind }) => kind === "moments")?.x ?? [];
    const ceiling = PAD.top + 16 * moments.length;
    const plot = document.querySelector(`#${figure.id} .plot`);
    const width = plot.clientWidth, { height } = figure;
    const [from, to] = figure.axis === "time" ? range : figure.range;
    const peak = Math.max(1, ...figure.layers.flatMap(({ y = [] }) => y), ...figure.layers.map(({ stems = 0 }) => stems));
    const x = (at) => +(PAD.left + (at - from) / (to - from) * (width - PAD.left - PAD.right)).toFixed(1);
    const y = (value) => +(height - PAD.bottom - value / (peak * 1.06) * (height - ceiling - PAD.bottom)).toFixed(1);
    const floor = y(0);
    plot.querySelector("svg")?.remove();
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, plot);
    const clip = make("clipPath", { id: `clip-${figure.id}` }, svg);
    make("rect", { x: PAD.left, y: 0, width: Math.max(0, width - PAD.left - PAD.right), height: floor + 6 }, clip);

    for (const value of ticks(0, peak, Math.max(1, nice(peak, 5)))) {
      make("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(value), y2: y(value) }, svg);
      make("text", { class: "end", x: PAD.left - 8, y: y(value) + 4 }, svg, value);
    }
    const step = nice(to - from, (width - PAD.left) / 70, figure.axis === "time" ? TIMES : [30, 60, 120, 300, 600, 1800]);
    const marked = ticks(from, to, step);
    marked.forEach((at, i) => {
      make("line", { class: "tick", x1: x(at), x2: x(at), y1: floor, y2: floor + 5 }, svg);
      const isTime = figure.axis === "time", isDay = isTime && (i === 0 || day(at) !== day(marked[i - 1]));
      make("text", { class: "middle", x: x(at), y: floor + 18 }, svg, isTime ? iso(at).slice(11, 16) : at);
      if (isDay) make("text", { class: "middle", x: x(at), y: floor + 32 }, svg, day(at));
    });
    make("text", { class: "end", x: width - PAD.right, y: height - 4 }, svg, figure.titles[0]);

    const inside = make("g", { "clip-path": `url(#clip-${figure.id})` }, svg);
    for (const { kind, colour: ink, x: xs, y: ys, ...layer } of figure.layers) {
      if (kind === "area") {
        const outline = `${steps(xs, ys, x, y)}V${y(layer.base.at(-1))}${back(xs, layer.base, x, y)}Z`;
        make("path", { d: outline, fill: colour(ink), class: "trace" }, inside);
      } else if (kind === "line") {
        const path = steps(xs, ys, x, y);
        if (layer.fill) make("path", { d: `${path}V${floor}H${x(xs[0])}Z`, fill: colour(layer.fill) }, inside);
        const style = { stroke: colour(ink), "stroke-width": layer.width ?? 1.5, "stroke-dasharray": layer.dash ?? "none" };
        make("path", { d: path, fill: "none", class: "trace", ...style }, inside);
      } else if (kind === "points") {
        xs.forEach((at, i) => {
          if (layer.stems) make("line", { x1: x(at), x2: x(at), y1: y(ys[i]), y2: y(layer.stems), stroke: colour(ink), "stroke-width": 2 }, inside);
          const style = layer.symbol === "cross" ? { stroke: colour(ink), "stroke-width": 2 } : { fill: colour(ink), stroke: colour("--card") };
          make("path", { d: SYMBOLS[layer.symbol], transform: `translate(${x(at)},${y(ys[i])})`, class: "trace", ...style }, inside);
        });
      }
    }
    if (figure.shaded) {
      const [start, end, label] = figure.shaded;
      make("rect", { class: "shaded", x: x(start), y: ceiling, width: Math.max(0, x(end) - x(start)), height: floor - ceiling }, inside);
      // Where the part is too narrow for its label, that stands beside it.
      const aside = x(end) - x(start) < 14;
      const [left, top, turn] = aside ? [x(end) + 6, ceiling + 10, 0] : [(x(start) + x(end)) / 2 + 4, floor - 8, -90];
      make("text", { class: "label", transform: `translate(${left},${top}) rotate(${turn})` }, inside, label);
    }
    for (const { kind, x: xs, text } of figure.layers) {
      if (kind !== "moments") continue;
      xs.forEach((at, i) => {
        const row = 14 + 16 * i, isLeft = x(at) < width * 0.6;
        make("line", { class: "moment", x1: x(at), x2: x(at), y1: row - 8, y2: floor }, inside);
        make("text", { class: isLeft ? "label" : "label end", x: x(at) + (isLeft ? 5 : -5), y: row }, svg, `${at} s: ${text[i]}`);
      });
    }
    Object.assign(plot, { figure, range: [from, to], x, width });
  };

  const plots = figures.map((figure) => {
    const plot = document.querySelector(`#${figure.id} .plot`);
    const legend = document.createElement("p");
    legend.className = "legend";
    plot.before(legend);
    element("span", "unit", legend, figure.titles[1]);
    for (const { name, colour: ink, symbol, dash } of figure.layers) {
      if (!name) continue;
      const entry = element("span", "", legend);
      const key = make("svg", { width: 16, height: 12, viewBox: "-8 -6 16 12" }, entry);
      if (symbol) make("path", { d: SYMBOLS[symbol], ...(symbol === "cross" ? { stroke: colour(ink), "stroke-width": 2 } : { fill: colour(ink) }) }, key);
      else if (dash) make("path", { d: "M-8,0H8", stroke: colour(ink), "stroke-width": 2, "stroke-dasharray": "4 3" }, key);
      else make("path", { d: "M-6,-5H6V5H-6Z", fill: colour(ink) }, key);
      entry.append(name);
    }
    draw(figure);
    return plot;
  });
  const redraw = () => figures.forEach(draw);
  const zoom = (to) => { range = to; figures.filter(({ axis }) => axis === "time").forEach(draw); };

  // What holds at the pointer, and the markers near it; a drag chooses the time that all timelines show.
  for (const plot of plots) {
    const tip = element("div", "tip", plot);
    const band = element("div", "band", plot);
    tip.hidden = band.hidden = true;
    const at = (place) => {
      const [from, to] = plot.range;
      const share = (place - PAD.left) / (plot.width - PAD.left - PAD.right);
      return from + Math.min(1, Math.max(0, share)) * (to - from);
    };
    const place = (event) => event.clientX - plot.getBoundingClientRect().left;
    let pressed = null;
    plot.addEventListener("pointerdown", (event) => {
      if (touch || event.button || plot.figure.axis !== "time") return;
      pressed = place(event);
      plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      const here = place(event), moment = at(here);
      if (pressed !== null && Math.abs(here - pressed) > 4) {
        band.hidden = false;
        Object.assign(band.style, { left: `${Math.min(here, pressed)}px`, width: `${Math.abs(here - pressed)}px` });
      }
      const texts = plot.figure.layers.flatMap((layer) => {
        if (layer.kind === "points") return layer.x.flatMap((x, i) => Math.abs(plot.x(x) - here) < 5 ? [layer.text[i]] : []);
        const value = layer.name ? held(layer, moment) : null;
        return value === null ? [] : [`${layer.name}: ${+value.toFixed(2)}`];
      });
      tip.textContent = [shownAt(plot.figure, moment), ...texts].join("\n");
      tip.hidden = false;
      tip.style.left = `${Math.min(here + 14, plot.width - tip.offsetWidth - 4)}px`;
    });
    plot.addEventListener("pointerup", (event) => {
      const here = place(event);
      if (pressed !== null && Math.abs(here - pressed) > 4) zoom([at(pressed), at(here)].sort((a, b) => a - b));
      pressed = null;
      band.hidden = true;
    });
    plot.addEventListener("pointerleave", () => { tip.hidden = true; });
    plot.addEventListener("dblclick", () => zoom(whole));
  }
  let known = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== known) { known = innerWidth; redraw(); } });
  document.documentElement.dataset.drawn = String(figures.length);

  // The keyboard's way back from a zoom; Escape in the search empties the search.
  addEventListener("keydown", ({ key, target }) => {
    if (key === "Escape" && target.id !== "search") zoom(whole);
  });

  const rows = [...document.querySelectorAll("#decisions tbody tr")];
  document.querySelector("main").addEventListener("click", ({ target }) => {
    if (!target.matches("button.time")) return;
    const at = Number(target.value);
    zoom([at - HOUR, at + HOUR]);
    document.getElementById("capacity").scrollIntoView({ behavior: "smooth" });
  });
  document.getElementById("search").addEventListener("input", ({ target }) => {
    const wanted = target.value.trim().toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
})();
