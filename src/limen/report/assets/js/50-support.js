// Lost and gained problems beside what chance alone would flip, and where every problem went.
function flips() {
  const root = byId("flips");
  if (!root || !DATA.contrasts.length) return;
  responsive(root, (width) => {
    const rows = DATA.contrasts.filter((c) => DATA.policies[c.policy].last), narrow = width < 560, left = narrow ? 0 : Math.min(250, 20 + Math.max(...rows.map((c) => wide(DATA.policies[c.policy].name)))), right = narrow ? 0 : 92, line = narrow ? 62 : 44, top = 30;
    const height = top + rows.length * line + 26, mid = left + (width - left - right) / 2;
    const reach = Math.max(4, ...rows.flatMap((c) => [c.lost, c.gained, c.chance_lost * 1.3, c.chance_gained * 1.3]));
    const span = (width - left - right) / 2 - 40, L = (n) => (n / reach) * span;
    const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img",
      "aria-label": "Problems lost and gained by each policy, with the number that chance alone would flip: " + rows.map((c) => `${DATA.policies[c.policy].name}: ${c.lost} lost, ${c.gained} gained, chance ${compact(c.chance_lost)} each way`).join("; ") });
    svg.append(s("text", { x: mid - 10, y: 14, "text-anchor": "end" }, "← lost"), s("text", { x: mid + 10, y: 14 }, "gained →"));
    rows.forEach((c, r) => {
      const y = top + r * line + (narrow ? 20 : 4), bar = 20, control = DATA.policies[c.policy].role === "control";
      const name = clip(DATA.policies[c.policy].name, narrow ? 30 : 33);
      svg.append(s("text", { class: "strong", x: narrow ? 0 : left - 14, y: narrow ? y - 6 : y + 15, "text-anchor": narrow ? "start" : "end", css: { "font-weight": 600, "font-style": control ? "italic" : null } }, name));
      for (const [n, chance, sign, tint] of [[c.lost, c.chance_lost, -1, "var(--lost)"], [c.gained, c.chance_gained, 1, "var(--gained)"]]) {
        const w = L(n);
        svg.append(s("rect", { x: sign < 0 ? mid - w : mid, y, width: w, height: bar, fill: tint, opacity: control ? 0.45 : 1 }));
        const x = mid + sign * L(chance);
        svg.append(s("line", { x1: x, x2: x, y1: y - 4, y2: y + bar + 4, stroke: "var(--ink)", "stroke-width": 2 }));
        const end = L(chance) > w - 4 && L(chance) < w + 34 ? L(chance) : w;
        svg.append(s("text", { class: "strong", x: mid + sign * (end + 7), y: y + 15, "text-anchor": sign < 0 ? "end" : "start", css: { "font-weight": 600, "font-size": "13px" } }, n));
      }
      svg.append(s("text", { x: width, y: narrow ? y - 6 : y + 15, "text-anchor": "end" }, c.p_text));
    });
    if (!narrow) svg.append(s("text", { x: width, y: 14, "text-anchor": "end" }, "net change"));
    svg.append(s("line", { class: "axis", x1: mid, x2: mid, y1: top - 6, y2: height - 24 }));
    const cx = Math.max(left, mid - 118), cy = height - 8;
    svg.append(s("line", { x1: cx, x2: cx, y1: cy - 12, y2: cy + 2, stroke: "var(--ink)", "stroke-width": 2 }), s("text", { x: cx + 8, y: cy }, "flips expected by chance alone, each way"));
    return svg;
  });
}

// The same counts had each policy been given fewer samples: does the loss come with the budget, or go?
function budgets() {
  const root = byId("budgets");
  if (!root) return;
  const rows = DATA.contrasts.filter((c) => c.by_budget.length > 1 && DATA.policies[c.policy].last);
  const top = Math.max(1, ...rows.flatMap((c) => c.by_budget.flatMap((r) => r.slice(1))));
  root.replaceChildren(...rows.map((c) => {
    const box = h("div"), line = h("p", { class: "small" }), ks = c.by_budget.map((r) => r[0]);
    const parts = [["lost", 2, "var(--lost)", ""], ["gained", 1, "var(--gained)", ""], ["chance, each way", 3, "var(--ink)", "2 3"]];
    const say = (row) => line.replaceChildren(`k = ${row[0]}: `, ...parts.flatMap(([name, at, tint], j) => [j ? " · " : "", h("i", { class: "swatch", css: { background: tint } }), `${name} ${compact(row[at])}`]));
    responsive(box, (width) => {
      const height = 170, m = { l: 34, r: 8, t: 8, b: 22 }, X = (k) => linear(0, Math.log2(ks[ks.length - 1]) || 1, m.l, width - m.r)(Math.log2(k)), Y = linear(0, top, height - m.b, m.t);
      const svg = s("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${DATA.policies[c.policy].name}: expected problems lost and gained at smaller budgets, and by chance` });
      for (const t of ticks(0, top, 4)) svg.append(s("line", { class: "grid", x1: m.l, x2: width - m.r, y1: Y(t), y2: Y(t) }), s("text", { x: m.l - 6, y: Y(t) + 4, "text-anchor": "end" }, compact(t)));
      for (const k of powers(ks[ks.length - 1], 6)) svg.append(s("text", { x: X(k), y: height - 4, "text-anchor": "middle" }, k));
      for (const [, at, tint, dashes] of parts) svg.append(s("path", { d: linePath(ks, c.by_budget.map((r) => r[at]), X, Y), fill: "none", stroke: tint, "stroke-width": 1.8, "stroke-dasharray": dashes, "stroke-linejoin": "round" }));
      svg.addEventListener("pointermove", (e) => { const r = svg.getBoundingClientRect(), x = ((e.clientX - r.left) / r.width) * width; say(c.by_budget.reduce((a, b) => (Math.abs(X(b[0]) - x) < Math.abs(X(a[0]) - x) ? b : a))); });
      return svg;
    });
    say(c.by_budget[c.by_budget.length - 1]);
    return h("figure", null, h("h3", null, DATA.policies[c.policy].name), box, line);
  }));
}

function flow() {
  const root = byId("flow");
  if (!root) return;
  const parts = DATA.contrasts.filter((c) => DATA.policies[c.policy].last).map((c) => {
    const box = h("div"), total = c.kept + c.gained + c.lost + c.never || 1;
    const name = DATA.policies[c.policy].name;
    responsive(box, (width) => {
      const height = 210, top = 22, room = height - top - 14, gap = 10, y = (n) => (n / total) * (room - gap);
      const x0 = 74, x1 = width - 78, bar = 9;
      const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${name}: ${c.kept} kept, ${c.lost} lost, ${c.gained} gained, ${c.never} never solved` });
      const solved0 = c.kept + c.lost, solved1 = c.kept + c.gained;
      const at0 = { kept: top, lost: top + y(c.kept), gained: top + y(solved0) + gap, never: top + y(solved0 + c.gained) + gap };
      const at1 = { kept: top, gained: top + y(c.kept), lost: top + y(solved1) + gap, never: top + y(solved1 + c.lost) + gap };
      for (const [key, opacity] of [["kept", 0.3], ["never", 0.5], ["lost", 0.85], ["gained", 0.85]]) {
        const a = at0[key], b = at1[key], t = Math.max(c[key] ? 1.5 : 0, y(c[key])), xa = x0 + bar, xb = x1 - bar, xm = (xa + xb) / 2;
        if (!t) continue;
        svg.append(s("path", { d: `M${xa} ${a}C${xm} ${a} ${xm} ${b} ${xb} ${b}V${b + t}C${xm} ${b + t} ${xm} ${a + t} ${xa} ${a + t}Z`, fill: `var(--${key})`, opacity }, s("title", null, `${c[key]} ${key}`)));
      }
      for (const [x, n] of [[x0, solved0], [x1 - bar, solved1]]) {
        svg.append(s("rect", { x, y: top, width: bar, height: y(n), fill: "var(--ink)" }), s("rect", { x, y: top + y(n) + gap, width: bar, height: Math.max(1, y(total - n)), fill: "none", stroke: "var(--faint)" }));
      }
      svg.append(s("text", { x: x0 - 8, y: 12, "text-anchor": "end" }, "base"), s("text", { x: x1 + 8, y: 12 }, clip(name, 10)));
      for (const [x, anchor, n] of [[x0 - 8, "end", solved0], [x1 + 8, "start", solved1]]) {
        svg.append(s("text", { class: "strong", x, y: top + y(n) / 2 + 2, "text-anchor": anchor }, n), s("text", { x, y: top + y(n) / 2 + 16, "text-anchor": anchor }, "solved"));
        const low = Math.min(height - 16, top + y(n) + gap + y(total - n) / 2 + 2);
        svg.append(s("text", { class: "strong", x, y: low, "text-anchor": anchor }, total - n), s("text", { x, y: low + 13, "text-anchor": anchor }, "not"));
      }
      return svg;
    });
    return h("figure", null, h("h3", null, name), box);
  });
  root.replaceChildren(...parts);
}
