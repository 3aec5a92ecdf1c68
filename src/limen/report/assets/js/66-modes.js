// Share of the responses that are code, with its interval; the rest is language. Checkpoints have a row each.
function modes() {
  const root = byId("modes");
  if (!root) return;
  const rows = DATA.policies.map((p, i) => ({ i, name: p.name, m: p.modes })).filter((r) => r.m);
  responsive(root, (width) => {
    const narrow = width < 560, line = narrow ? 42 : 28, left = narrow ? 0 : Math.min(300, 20 + Math.max(...rows.map((r) => wide(r.name))));
    const height = rows.length * line + 30, X = linear(0, 1, left, width - 46);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Share of responses in code: " + rows.map((r) => `${r.name} ${rate(r.m[0])}`).join("; ") });
    for (const t of [0, 0.25, 0.5, 0.75, 1]) svg.append(s("line", { class: "grid", x1: X(t), x2: X(t), y1: 0, y2: height - 26 }), s("text", { x: X(t), y: height - 10, "text-anchor": "middle" }, t));
    rows.forEach((r, j) => {
      const y = j * line + (narrow ? 29 : 14), [v, lo, hi] = r.m;
      svg.append(s("text", { class: "strong", x: narrow ? 0 : left - 12, y: narrow ? y - 11 : y + 4, "text-anchor": narrow ? "start" : "end" }, clip(r.name, 28)));
      svg.append(s("rect", { x: X(0), y: y - 7, width: X(1) - X(0), height: 14, fill: "var(--wash)" }), s("rect", { x: X(0), y: y - 7, width: X(v) - X(0), height: 14, fill: color(r.i) }, s("title", null, `${r.name}: ${rate(v)} code, ${rate(1 - v)} language`)));
      if (finite(lo)) svg.append(s("line", { x1: X(lo), x2: X(hi), y1: y, y2: y, stroke: "var(--faint)", "stroke-width": 2 }));
      svg.append(s("text", { class: "strong", x: X(1) + 6, y: y + 4 }, rate(v)));
    });
    return svg;
  });
}
