// pass@k over budgets, or the difference from the base; the legend doubles as the read-out at the chosen k.
function curves() {
  const root = byId("curves");
  if (!root) return;
  const shown = DATA.policies.map((p) => p.last && (p.role !== "control" || DATA.policies.length <= 4));
  const longest = Math.max(...DATA.policies.map((p) => p.curve.k[p.curve.k.length - 1] || 1));
  const state = { view: "value", k: longest };
  const box = h("div"), legend = h("ul", { class: "legend" }), status = h("p", { class: "small", "aria-live": "polite" });

  const seriesOf = (i) => (state.view === "value" ? DATA.policies[i].curve : (DATA.contrasts.find((c) => c.policy === i) || {}).difference);
  const visible = () => DATA.policies.map((_, i) => i).filter((i) => shown[i] && seriesOf(i));
  const grid = () => [...new Set(visible().flatMap((i) => seriesOf(i).k))].sort((a, b) => a - b);

  function readout() {
    legend.replaceChildren(...DATA.policies.map((policy, i) => {
      const series = seriesOf(i), at = series ? series.k.indexOf(state.k) : -1;
      const show = state.view === "value" ? rate : signed;
      const value = at < 0 ? h("small", null, i === 0 && state.view !== "value" ? "reference" : "–")
        : [show(series.v[at]), " ", h("small", null, `[${show(series.lo[at])}, ${show(series.hi[at])}]`)];
      return h("li", null, h("button", {
        type: "button", "aria-pressed": String(shown[i]), title: shown[i] ? "Hide this curve" : "Show this curve",
        on: { click: () => { shown[i] = !shown[i]; again(); legend.children[i].firstChild.focus(); } },
      }, s("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, s("line", { x1: 1, x2: 25, y1: 5, y2: 5, stroke: color(i), "stroke-width": 2.5, "stroke-dasharray": dash(i) })),
      h("span", { class: "name" }, policy.name), h("span", { class: "val" }, value)));
    }));
    status.textContent = `Values at k = ${state.k}, with 95% intervals. Move over the plot, or use the arrow keys, for other k; click a name to hide its curve.`;
  }

  function draw(width) {
    const narrow = width < 560, height = narrow ? 300 : 400, ids = visible(), all = ids.map(seriesOf);
    const label = Math.min(200, 14 + Math.max(0, ...ids.map((i) => wide(DATA.policies[i].name))));
    const m = { l: 46, r: narrow ? 14 : label, t: 14, b: 40 };
    const values = all.flatMap((c) => [...c.v, ...c.lo, ...c.hi]).filter(finite);
    let low = Math.min(...values, state.view === "value" ? 1 : 0), high = Math.max(...values, 0);
    if (!values.length) { low = 0; high = 1; }
    if (state.view === "value") { high = Math.min(1, high + 0.02); low = low < 0.35 ? 0 : Math.floor(low * 10) / 10; if (high - low < 0.1) low = Math.max(0, high - 0.1); }
    else { const pad = (high - low || 0.1) * 0.06; low -= pad; high += pad; }
    const X0 = linear(0, Math.log2(longest) || 1, m.l, width - m.r), X = (k) => X0(Math.log2(k)), Y = linear(low, high, height - m.b, m.t);
    const svg = s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: 0,
      "aria-label": (state.view === "value" ? "pass at k" : "difference of pass at k from the base") + " against the number of attempts k. The values are in the table below." });
    for (const t of ticks(low, high, 6)) {
      svg.append(s("line", { class: t === 0 && state.view !== "value" ? "axis" : "grid", x1: m.l, x2: width - m.r, y1: Y(t), y2: Y(t) }));
      svg.append(s("text", { x: m.l - 8, y: Y(t) + 4, "text-anchor": "end" }, state.view === "value" ? String(Number(t.toFixed(3))) : (t > 0 ? "+" : t < 0 ? "−" : "") + Number(Math.abs(t).toFixed(3))));
    }
    for (const k of powers(longest, narrow ? 6 : 11)) svg.append(s("text", { x: X(k), y: height - m.b + 20, "text-anchor": "middle" }, k));
    svg.append(s("text", { x: (m.l + width - m.r) / 2, y: height - 4, "text-anchor": "middle" }, "attempts k"));
    svg.append(s("line", { class: "axis", x1: m.l, x2: width - m.r, y1: height - m.b, y2: height - m.b }));
    const cursor = s("line", { class: "cursor", x1: X(state.k), x2: X(state.k), y1: m.t, y2: height - m.b });
    svg.append(cursor);
    ids.forEach((i, j) => isControl(i) || svg.append(s("path", { d: bandPath(all[j].k, all[j].lo, all[j].hi, X, Y), fill: color(i), opacity: 0.13 })));
    ids.forEach((i, j) => svg.append(s("path", { d: linePath(all[j].k, all[j].v, X, Y), fill: "none", stroke: color(i), "stroke-width": i === 0 ? 2.4 : 2, "stroke-dasharray": dash(i), "stroke-linejoin": "round" })));
    if (!narrow) {
      const labels = ids.map((i, j) => { const v = all[j].v, at = v.findLastIndex(finite); return at < 0 ? null : { i, x: X(all[j].k[at]), y: Y(v[at]) }; }).filter(Boolean);
      spread(labels, 15, m.t + 4, height - m.b - 4);
      for (const l of labels) svg.append(s("text", { x: l.x + 8, y: l.y + 4, css: { fill: color(l.i), "font-weight": 600 } }, clip(DATA.policies[l.i].name, 26)));
    }
    const dots = s("g");
    svg.append(dots);
    const ks = grid();
    const move = (k) => {
      state.k = k;
      cursor.setAttribute("x1", X(k)); cursor.setAttribute("x2", X(k));
      dots.replaceChildren(...ids.map((i, j) => { const at = all[j].k.indexOf(k); return at < 0 || !finite(all[j].v[at]) ? null : s("circle", { cx: X(k), cy: Y(all[j].v[at]), r: 3.6, fill: color(i) }); }).filter(Boolean));
      readout();
    };
    if (ks.length) {
      svg.addEventListener("pointermove", (e) => {
        const r = svg.getBoundingClientRect(), x = ((e.clientX - r.left) / r.width) * width;
        const k = ks.reduce((a, b) => (Math.abs(X(b) - x) < Math.abs(X(a) - x) ? b : a));
        if (k !== state.k) move(k);
      });
      svg.addEventListener("keydown", (e) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9 }[e.key];
        if (!step) return;
        e.preventDefault();
        move(ks[Math.min(ks.length - 1, Math.max(0, ks.indexOf(state.k) + step))]);
      });
      move(ks.includes(state.k) ? state.k : ks[ks.length - 1]);
    }
    return svg;
  }

  const views = [["value", "pass@k"], ["difference", "difference from base"]].map(([view, name]) =>
    h("button", { type: "button", "aria-pressed": String(view === state.view), on: { click: (e) => {
      state.view = view;
      for (const b of e.currentTarget.parentNode.children) b.setAttribute("aria-pressed", String(b === e.currentTarget));
      again();
    } } }, name));
  root.replaceChildren(h("div", { class: "controls" }, DATA.contrasts.length ? h("div", { class: "seg", role: "group", "aria-label": "What the plot shows" }, views) : null), box, legend, status);
  const again = responsive(box, draw);
}
