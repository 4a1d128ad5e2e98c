"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("data").textContent);
  const plot = (id) => document.querySelector(`#${id} .plot`);
  const timelines = figures.map((figure) => plot(figure.id));
  const touch = matchMedia("(pointer: coarse)").matches;

  // Colours and fonts are CSS variables, so that style sheet and pictures agree in either colour scheme.
  const dressed = (value, style) => {
    if (Array.isArray(value)) return value.map((item) => dressed(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, dressed(item, style)]));
    }
    const name = typeof value === "string" && /^var\((--[\w-]+)\)$/.exec(value);
    return name ? style.getPropertyValue(name[1]).trim() : value;
  };

  const draw = () => {
    const style = getComputedStyle(document.documentElement);
    return Promise.all(figures.map(({ id, data, layout }) => {
      const shown = plot(id)?.layout?.xaxis?.range;
      const dress = dressed(layout, style);
      if (shown && dress.xaxis.range) dress.xaxis.range = shown;
      if (touch) dress.dragmode = false; // a finger scrolls the page
      const config = { responsive: true, displaylogo: false, displayModeBar: false };
      return Plotly.react(plot(id), dressed(data, style), dress, config);
    }));
  };

  let following = false;
  const zoom = async (range, source) => {
    if (following) return;
    following = true;
    const others = timelines.filter((one) => one !== source);
    await Promise.all(others.map((one) => Plotly.relayout(one, { "xaxis.range": [...range] })));
    following = false;
  };

  draw().then(() => {
    for (const one of timelines) {
      one.on("plotly_relayout", (change) => {
        const zoomed = Object.keys(change).some((key) => key.startsWith("xaxis.range"));
        if (zoomed) zoom(one.layout.xaxis.range, one);
      });
    }
    document.documentElement.dataset.drawn = String(figures.length);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  // The keyboard's way back from a zoom; Escape in the search empties the search.
  addEventListener("keydown", ({ key, target }) => {
    if (key !== "Escape" || target.id === "search") return;
    zoom(figures[0].layout.xaxis.range);
  });

  const HOUR = 3600 * 1000;
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
