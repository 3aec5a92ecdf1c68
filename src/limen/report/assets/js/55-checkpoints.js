// pass@k against the training step, for policies that were sampled at several checkpoints: small k beside large.
function checkpoints() {
  const root = byId("checkpoint-plots");
  if (!root) return;
  const base = DATA.policies[0], families = [...new Set(DATA.policies.filter((p) => !p.last).map((p) => p.family))];
  const lines = families.map((family) => {
    const points = DATA.policies.map((p, i) => ({ p, i, step: p.step })).filter((x) => x.p.family === family && x.p.role === "trained");
    points.sort((a, b) => a.step - b.step);
    const start = points[0].step > 0 ? [{ p: base, i: 0, step: 0 }] : [];
    return { family, paint: color(points[points.length - 1].i), points: [...start, ...points] };
  });
  const ks = base.curve.k.filter((k) => DATA.policies.every((p) => p.curve.k.includes(k)));
  const chosen = [...new Set([ks[0], ks[Math.floor(ks.length / 2)], ks[ks.length - 1]])];
  const steps = lines.flatMap((l) => l.points.map((x) => x.step));
  root.replaceChildren(...chosen.map((k) => {
    const box = h("div"), at = (x, key) => x.p.curve[key][x.p.curve.k.indexOf(k)];
    const all = lines.flatMap((l) => l.points.flatMap((x) => [at(x, "lo"), at(x, "hi"), at(x, "v")])).filter(finite);
    responsive(box, (width) => {
      const height = 190, m = { l: 40, r: 8, t: 8, b: 22 }, X = linear(Math.min(...steps), Math.max(...steps), m.l, width - m.r), Y = linear(Math.min(...all), Math.max(...all), height - m.b, m.t);
      const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `pass@${k} over checkpoints: ` + lines.map((l) => `${l.family} ${l.points.map((x) => `${x.step}: ${rate(at(x, "v"))}`).join(", ")}`).join("; ") });
      for (const t of ticks(Math.min(...all), Math.max(...all), 4)) svg.append(s("line", { class: "grid", x1: m.l, x2: width - m.r, y1: Y(t), y2: Y(t) }), s("text", { x: m.l - 6, y: Y(t) + 4, "text-anchor": "end" }, compact(t)));
      for (const t of ticks(Math.min(...steps), Math.max(...steps), 4).filter(Number.isInteger)) svg.append(s("text", { x: X(t), y: height - 4, "text-anchor": "middle" }, t));
      for (const l of lines) {
        const xs = l.points.map((x) => x.step), ys = l.points.map((x) => at(x, "v"));
        svg.append(s("path", { d: bandPath(xs, l.points.map((x) => at(x, "lo")), l.points.map((x) => at(x, "hi")), X, Y), fill: l.paint, opacity: 0.13 }));
        svg.append(s("path", { d: linePath(xs, ys, X, Y), fill: "none", stroke: l.paint, "stroke-width": 1.8, "stroke-linejoin": "round" }));
        l.points.forEach((x, j) => finite(ys[j]) && svg.append(s("circle", { cx: X(x.step), cy: Y(ys[j]), r: 2.6, fill: l.paint }, s("title", null, `${l.family}, step ${x.step}: ${rate(ys[j])}`))));
      }
      return svg;
    });
    return h("figure", null, h("h3", null, `pass@${k}`), box, h("p", { class: "small" }, lines.flatMap((l, j) => [j ? " · " : "", h("i", { class: "swatch", css: { background: l.paint } }), l.family])));
  }));
}
