/* The two small charts: what was held and who waited, as the server's process has seen it before
   this tab was opened, and as the tab has seen it since. */
"use strict";

(() => {
  const root = document.getElementById("distlock");
  if (!root) return;
  const MINUTES = 10;
  const KEPT = MINUTES * 60000;
  const NEAR = 2000; // ms between two samples of one moment
  const KEY = "django-distlock.samples";
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 600;
  const HEIGHT = 48;
  const charts = root.querySelector(".dl-charts");
  let samples = read();

  function read() {
    try {
      const found = JSON.parse(sessionStorage.getItem(KEY) || "[]");
      return Array.isArray(found) ? found.filter((each) => Array.isArray(each)) : [];
    } catch {
      return []; // storage is off, or holds something else
    }
  }

  /* What the server's process has seen, for the times of which this tab has seen nothing. */
  function fill() {
    const now = Date.now();
    const told = JSON.parse(root.dataset.samples || "[]").map(([age, ...counts]) => [now - 1000 * age, ...counts]);
    const fresh = told.filter(([at]) => !samples.some((each) => Math.abs(each[0] - at) < NEAR));
    samples = [...samples, ...fresh].sort((one, other) => one[0] - other[0]);
  }

  function keep() {
    try {
      sessionStorage.setItem(KEY, JSON.stringify(samples));
    } catch {
      // storage is off or full: the charts begin anew with the next page
    }
  }

  function text(template, values) {
    return template.replace(/\{(\w+)\}/g, (whole, name) => String(values[name] ?? whole));
  }

  function element(tag, className, content) {
    const made = document.createElement(tag);
    made.className = className;
    made.textContent = content;
    return made;
  }

  function path(points, now, span, most, closed) {
    const x = (at) => (WIDTH * (1 - (now - at) / span)).toFixed(1);
    const y = (value) => (HEIGHT - 2 - (HEIGHT - 6) * (value / most)).toFixed(1);
    const line = points.map(([at, value]) => `${x(at)},${y(value)}`).join("L");
    if (!closed) return `M${line}`;
    return `M${x(points[0][0])},${HEIGHT}L${line}L${x(points[points.length - 1][0])},${HEIGHT}Z`;
  }

  function draw(chart, index, now) {
    const points = samples.filter((each) => each[index] !== null).map((each) => [each[0], each[index]]);
    const last = points.length ? points[points.length - 1][1] : null;
    const most = points.reduce((high, each) => Math.max(high, each[1]), 0);
    const label = chart.dataset.label;
    // As far as there is something to be seen, in whole minutes.
    const minutes = Math.max(1, Math.ceil((now - samples[0][0]) / 60000));
    const head = document.createElement("div");
    head.className = "dl-chart-head";
    head.append(element("strong", "", last === null ? "–" : String(last)));
    head.append(element("span", "dl-quiet", label), element("span", "dl-most", `≤ ${most} · ${minutes} min`));
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    if (points.length > 1) {
      for (const closed of [true, false]) {
        const drawn = document.createElementNS(SVG, "path");
        drawn.setAttribute("d", path(points, now, minutes * 60000, Math.max(most, 1), closed));
        if (closed) drawn.setAttribute("class", "dl-area");
        svg.append(drawn);
      }
    }
    chart.setAttribute("role", "img");
    const said = { what: label, now: last ?? "–", most, minutes };
    chart.setAttribute("aria-label", text(root.dataset.textChart, said));
    chart.replaceChildren(head, svg);
  }

  function table() {
    const minutes = new Map();
    for (const [at, held, waiting] of samples) {
      const minute = Math.floor(at / 60000);
      const [high, queue] = minutes.get(minute) ?? [0, null];
      const waited = waiting === null ? queue : Math.max(queue ?? 0, waiting);
      minutes.set(minute, [Math.max(high, held), waited]);
    }
    const rows = [...minutes].reverse().map(([minute, [held, waiting]]) => {
      const row = document.createElement("tr");
      const time = new Date(minute * 60000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
      for (const each of [time, held, waiting ?? "–"]) row.append(element("td", "", String(each)));
      return row;
    });
    charts.querySelector("tbody").replaceChildren(...rows);
  }

  function add(held, waiting) {
    const now = Date.now();
    samples = samples.filter((each) => now - each[0] < KEPT && each[0] <= now);
    samples.push([now, held, waiting]);
    keep();
    charts.querySelectorAll(".dl-chart").forEach((chart, index) => draw(chart, index + 1, now));
    if (charts.querySelector("details").open) table();
  }

  charts.hidden = false;
  charts.querySelector("details").addEventListener("toggle", table);
  root.addEventListener("distlock:sample", (event) => add(event.detail.held, event.detail.waiting));
  fill();
  add(Number(root.dataset.held), root.dataset.waiting === "" ? null : Number(root.dataset.waiting));
})();
