"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const plots = [...document.querySelectorAll(".plot")];

  function colour(token, style) {
    const [, name, alpha] = /^(--[a-z-]+)(?:\/([0-9.]+))?$/.exec(token) || [];
    if (!name) return token;
    const value = style.getPropertyValue(name).trim();
    if (!alpha || !value.startsWith("#")) return value || token;
    const parts = [1, 3, 5].map((place) => parseInt(value.slice(place, place + 2), 16));
    return `rgba(${parts.join(",")},${alpha})`;
  }

  function filled(value, style) {
    if (typeof value === "string") return value.startsWith("--") ? colour(value, style) : value;
    if (Array.isArray(value)) return value.map((one) => filled(one, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, filled(one, style)]));
    }
    return value;
  }

  function layout(own, style, height, narrow) {
    const axis = {
      gridcolor: style.getPropertyValue("--grid").trim(),
      linecolor: style.getPropertyValue("--line").trim(),
      zerolinecolor: style.getPropertyValue("--line").trim(),
      automargin: true, fixedrange: true, ticks: "", title: { standoff: 8 },
    };
    const size = narrow ? 11 : 12.5;
    const font = { family: getComputedStyle(document.body).fontFamily, size, color: style.getPropertyValue("--ink").trim() };
    const margin = { l: narrow ? 40 : 56, r: 12, t: 26, b: 44, ...(own.margin || {}) };
    const joined = (name) => ({ ...axis, ...own[name], title: { ...axis.title, ...((own[name] || {}).title || {}) } });
    return {
      ...own, margin, font, height, autosize: true, dragmode: false,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      hoverlabel: { font: { size } }, xaxis: { nticks: narrow ? 5 : 9, ...joined("xaxis") }, yaxis: { nticks: 6, ...joined("yaxis") },
    };
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const narrow = window.innerWidth < 560;
    for (const plot of plots) {
      const { data, layout: own, height } = filled(figures[plot.id], style);
      const options = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };
      Plotly.react(plot, data, layout(own, style, height, narrow), options).then(() => { plot.dataset.drawn = "yes"; });
    }
  }

  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.matchMedia("(max-width: 559px)").addEventListener("change", draw);
  window.addEventListener("beforeprint", () => {
    document.documentElement.dataset.theme = "light";
    document.querySelectorAll("details.evidence").forEach((one) => { one.open = true; });
    draw();
  });
  window.addEventListener("afterprint", () => { delete document.documentElement.dataset.theme; draw(); });
})();
