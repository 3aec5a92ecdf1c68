// What was logged during training: one small plot per quantity, all runs in each.
function training() {
  const root = byId("training-plots");
  if (!root) return;
  const keys = [...new Set(DATA.training.flatMap((run) => Object.keys(run.series)))];
  const order = (key) => { const i = DATA.main_keys.indexOf(key); return i < 0 ? 99 : i; };
  keys.sort((a, b) => order(a) - order(b) || a.localeCompare(b));
  const paint = (r) => color(DATA.training[r].policy ?? r + 1);
  const plot = (key) => {
    const box = h("div"), value = h("p", { class: "small" });
    const runs = DATA.training.map((run, r) => ({ r, name: run.name, data: run.series[key] })).filter((run) => run.data);
    const say = (step) => value.replaceChildren(...runs.flatMap((run, j) => {
      const steps = run.data[0], at = steps.reduce((best, x, i) => (Math.abs(x - step) < Math.abs(steps[best] - step) ? i : best), 0);
      return [j ? " · " : `step ${steps[at]}: `, h("i", { class: "swatch", css: { background: paint(run.r) } }), `${run.name}  ${compact(run.data[1][at])}`];
    }));
    responsive(box, (width) => {
      const height = 150, m = { l: 44, r: 14, t: 8, b: 20 };
      const xs = runs.flatMap((run) => run.data[0]), ys = runs.flatMap((run) => run.data[1]).filter(finite);
      let low = Math.min(...ys), high = Math.max(...ys);
      if (!ys.length) { low = 0; high = 1; }
      if (low === high) { const pad = Math.abs(low) * 0.1 || 1; low -= pad; high += pad; }
      const X = linear(Math.min(...xs), Math.max(...xs), m.l, width - m.r), Y = linear(low, high, height - m.b, m.t);
      const svg = s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${DATA.labels[key] ?? key} over training steps` });
      for (const t of ticks(low, high, 3)) svg.append(s("line", { class: "grid", x1: m.l, x2: width - m.r, y1: Y(t), y2: Y(t) }), s("text", { x: m.l - 6, y: Y(t) + 4, "text-anchor": "end" }, compact(t)));
      for (const t of ticks(Math.min(...xs), Math.max(...xs), 4).filter(Number.isInteger)) svg.append(s("text", { x: X(t), y: height - 4, "text-anchor": "middle" }, t));
      for (const run of runs.filter((one) => one.data[0].length === 1)) svg.append(s("circle", { cx: X(run.data[0][0]), cy: Y(run.data[1][0]), r: 3, fill: paint(run.r) }));
      for (const run of runs) svg.append(s("path", { d: linePath(run.data[0], run.data[1], X, Y), fill: "none", stroke: paint(run.r), "stroke-width": run.data[2].length ? 0.8 : 1.6, opacity: run.data[2].length ? 0.4 : 1, "stroke-linejoin": "round" }));
      for (const run of runs.filter((one) => one.data[2].length)) svg.append(s("path", { d: linePath(run.data[0], run.data[2], X, Y), fill: "none", stroke: paint(run.r), "stroke-width": 1.9, "stroke-linejoin": "round" }));
      svg.addEventListener("pointermove", (e) => { const r = svg.getBoundingClientRect(), x = ((e.clientX - r.left) / r.width) * width; say(Math.min(...xs) + ((x - m.l) / (width - m.l - m.r)) * (Math.max(...xs) - Math.min(...xs))); });
      return svg;
    });
    say(Math.max(...runs.flatMap((run) => run.data[0])));
    return h("figure", null, h("h3", { title: key }, DATA.labels[key] ?? key), box, value);
  };
  const grid = h("div", { class: "multiples" }, keys.filter((k) => order(k) < 99).map(plot));
  const rest = keys.filter((k) => order(k) === 99), more = h("div", { class: "multiples" });
  root.replaceChildren(grid);
  if (rest.length) {
    const fold = h("details", { on: { toggle: () => { if (!more.children.length) more.replaceChildren(...rest.map(plot)); } } }, h("summary", null, `${rest.length} more logged quantities`), more);
    if (!grid.children.length) fold.open = true;
    root.append(fold);
  }
}
