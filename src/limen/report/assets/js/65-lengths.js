// Tokens of correct and of other responses: median, middle half, 5 to 95%.
function lengths() {
  const root = byId("lengths");
  if (!root) return;
  const rows = DATA.policies.flatMap((p, i) => p.lengths.map((x) => ({ i, name: p.name, kind: x[0], n: x[1], q: x.slice(2) })));
  responsive(root, (width) => {
    const narrow = width < 560, line = narrow ? 40 : 26, left = narrow ? 0 : Math.min(300, 20 + Math.max(...rows.map((r) => wide(`${r.name}, ${r.kind}`))));
    const top = Math.max(1, ...rows.map((r) => r.q[4])), height = rows.length * line + 30, X = linear(0, top, left, width - 14);
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Response length in tokens: " + rows.map((r) => `${r.name} ${r.kind}: median ${compact(r.q[2])}`).join("; ") });
    for (const t of ticks(0, top, narrow ? 4 : 8)) svg.append(s("line", { class: "grid", x1: X(t), x2: X(t), y1: 0, y2: height - 26 }), s("text", { x: X(t), y: height - 10, "text-anchor": "middle" }, compact(t)));
    rows.forEach((r, j) => {
      const y = j * line + (narrow ? 28 : 13), opacity = r.kind === "correct" ? 1 : 0.45;
      svg.append(s("text", { class: "strong", x: narrow ? 0 : left - 12, y: narrow ? y - 10 : y + 4, "text-anchor": narrow ? "start" : "end" }, `${clip(r.name, 28)}, ${r.kind}`));
      svg.append(s("line", { x1: X(r.q[0]), x2: X(r.q[4]), y1: y, y2: y, stroke: color(r.i), opacity }));
      svg.append(s("rect", { x: X(r.q[1]), y: y - 4, width: Math.max(2, X(r.q[3]) - X(r.q[1])), height: 8, fill: color(r.i), opacity }));
      svg.append(s("line", { x1: X(r.q[2]), x2: X(r.q[2]), y1: y - 7, y2: y + 7, stroke: "var(--ink)", "stroke-width": 2 }, s("title", null, `${r.n} responses, median ${compact(r.q[2])} tokens`)));
    });
    return svg;
  });
}
