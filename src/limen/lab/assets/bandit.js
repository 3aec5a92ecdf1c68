// The mathematics of limen.lab.bandit again, so that the page answers at once; a browser test compares the two.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg", V = DATA.actions, OBJECTIVES = ["reinforce", "mle"];
const byId = (id) => document.getElementById(id);
const node = (tag, attrs, text) => {
  const n = document.createElementNS(SVG, tag);
  for (const [k, v] of Object.entries(attrs)) n.setAttribute(k, v);
  if (text !== undefined) n.textContent = text;
  return n;
};

function softmax(z) {
  const top = Math.max(...z), e = z.map((v) => Math.exp(v - top)), sum = e.reduce((a, b) => a + b, 0);
  return e.map((v) => v / sum);
}
function path(z, labels, objective, eta, steps) {
  let now = z.slice();
  const out = [softmax(now)];
  for (let t = 0; t < steps; t++) {
    const pi = out[t], weight = [...labels].map(([y, s]) => [y, objective === "reinforce" ? s * pi[y] : s]);
    const sum = weight.reduce((a, [, w]) => a + w, 0);
    now = now.map((v, i) => v - eta * sum * pi[i]);
    for (const [y, w] of weight) now[y] += eta * w;
    out.push(softmax(now));
  }
  return out;
}

const state = { start: "peaked", seed: DATA.seed, uneven: 1, eta: DATA.eta, norm: DATA.norm2, step: 1, labels: new Map() };

// "11+, 5-" as a map; null where it is something else, so that a half-typed text changes nothing.
function parseLabels(text) {
  const labels = new Map();
  for (const part of text.split(",").map((p) => p.trim()).filter(Boolean)) {
    const m = /^(\d{1,3})\s*([+\-−])$/.exec(part);
    if (!m || Number(m[1]) >= V || labels.has(Number(m[1]))) return null;
    labels.set(Number(m[1]), m[2] === "+" ? 1 : -1);
  }
  return labels;
}
const writeLabels = () => [...state.labels].map(([y, s]) => y + (s > 0 ? "+" : "-")).join(", ");
const kind = (y) => (state.labels.get(y) > 0 ? "up" : state.labels.get(y) < 0 ? "down" : "none");
const number = (x) => (x === 0 ? "0" : x < 0.0005 || x >= 1000 ? x.toExponential(1) : x.toFixed(x < 10 ? 4 : 1));

function cycle(y) {
  const s = state.labels.get(y);
  if (s === undefined) state.labels.set(y, 1); else if (s > 0) state.labels.set(y, -1); else state.labels.delete(y);
  byId("labels").value = writeLabels();
  byId("note").textContent = "";
  draw();
}

function bars(place, before, after) {
  const W = 520, H = 190, left = 34, floor = H - 22, top = Math.max(...before, ...after) * 1.06, w = (W - left) / V;
  const y = (p) => floor - (floor - 6) * p / top;
  const svg = node("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Probability of each action, before and after" });
  for (const p of [0, top / 2, top]) {
    svg.append(node("line", { class: "grid", x1: left, x2: W, y1: y(p), y2: y(p) }), node("text", { x: left - 5, y: y(p) + 4, "text-anchor": "end" }, p.toFixed(2)));
  }
  const named = new Set([...state.labels.keys(), before.indexOf(Math.max(...before))]);
  let taken = -99;
  for (let i = 0; i < V; i++) {
    const x = left + i * w, hit = node("rect", { class: "hit", x, y: 0, width: w, height: floor, "data-action": i });
    hit.append(node("title", {}, `action ${i}: ${number(before[i])} → ${number(after[i])}`));
    hit.addEventListener("click", () => cycle(i));
    svg.append(hit, node("rect", { class: "before", x: x + 0.5, y: y(before[i]), width: w - 1, height: floor - y(before[i]) }),
      node("rect", { class: `after ${kind(i)}`, x: x + w * 0.25, y: y(after[i]), width: w * 0.5, height: floor - y(after[i]) }));
    if (named.has(i)) {
      const at = Math.max(x + w / 2, taken + 17);
      taken = at;
      svg.append(node("text", { class: kind(i), x: at, y: H - 6, "text-anchor": "middle" }, i));
    }
  }
  place.replaceChildren(svg);
}

function lines(place, points) {
  const W = 520, H = 130, left = 34, floor = H - 22, right = W - 40, n = points.length - 1;
  const x = (t) => left + (right - left) * (n ? t / n : 0), y = (p) => floor - (floor - 6) * p;
  const svg = node("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Probability over the steps" });
  for (const p of [0, 0.5, 1]) svg.append(node("line", { class: "grid", x1: left, x2: right, y1: y(p), y2: y(p) }), node("text", { x: left - 5, y: y(p) + 4, "text-anchor": "end" }, p));
  for (const t of [0, n / 2, n].filter(Number.isInteger)) svg.append(node("text", { x: x(t), y: H - 6, "text-anchor": "middle" }, t === n ? `${t} steps` : t));
  svg.append(node("line", { class: "now", x1: x(state.step), x2: x(state.step), y1: 6, y2: floor }));
  const greedy = points[0].indexOf(Math.max(...points[0])), shown = [...new Set([...state.labels.keys(), greedy])];
  let taken = floor + 12;
  for (const a of shown.sort((p, q) => points[n][p] - points[n][q])) {
    const at = Math.min(y(points[n][a]), taken - 12);
    taken = at;
    svg.append(node("polyline", { class: `line ${kind(a)}`, points: points.map((pi, t) => `${x(t)},${y(pi[a])}`).join(" ") }), node("text", { class: kind(a), x: right + 5, y: at + 4 }, `π(${a})`));
  }
  place.replaceChildren(svg);
}

function draw() {
  const z = DATA.starts[state.start][state.seed].map((v) => v * state.uneven), eta = state.eta * state.norm;
  const longest = Math.max(10, state.step), found = {};
  for (const o of OBJECTIVES) {
    const all = path(z, state.labels, o, eta, longest), now = all[state.step];
    found[o] = now;
    bars(byId(`bars-${o}`), all[0], now);
    lines(byId(`path-${o}`), all);
    const best = now.map((p, i) => p / all[0][i]), top = best.indexOf(Math.max(...best));
    byId(`said-${o}`).textContent = state.step && state.labels.size ? `largest α: ${number(best[top])} at action ${top}` : "";
  }
  const before = softmax(z), greedy = before.indexOf(Math.max(...before));
  const rows = [...new Set([...state.labels.keys(), greedy])].map((a) => {
    const tr = document.createElement("tr"), sign = state.labels.get(a);
    const cells = [sign ? (sign > 0 ? "rewarded" : "pushed down") : "greedy", number(before[a])];
    for (const o of OBJECTIVES) cells.push(number(found[o][a]), number(found[o][a] / before[a]));
    const th = document.createElement("th");
    th.scope = "row";
    th.textContent = a;
    tr.append(th, ...cells.map((c) => { const td = document.createElement("td"); td.className = "num"; td.textContent = c; return td; }));
    return tr;
  });
  byId("numbers").tBodies[0].replaceChildren(...rows);
  const shown = { step: state.step, eta: state.eta.toFixed(2), norm: state.norm.toFixed(1), uneven: state.uneven.toFixed(2) };
  for (const [k, v] of Object.entries(shown)) byId(`${k}-out`).textContent = v;
  byId("eta-prime").textContent = eta.toFixed(2);
}

function choose(row) {
  const r = DATA.rows[row];
  Object.assign(state, { start: r.start, seed: DATA.seed, uneven: 1, eta: DATA.eta, norm: DATA.norm2, step: r.steps, labels: new Map(r.labels) });
  for (const k of ["start", "seed", "uneven", "eta", "norm", "step"]) byId(k).value = state[k];
  byId("labels").value = writeLabels();
  byId("note").textContent = "";
  for (const b of byId("rows").children) b.setAttribute("aria-pressed", String(b.dataset.row === String(row)));
  draw();
}

const free = () => { for (const b of byId("rows").children) b.setAttribute("aria-pressed", "false"); };
for (const k of ["uneven", "eta", "norm", "step"]) byId(k).addEventListener("input", (e) => { state[k] = Number(e.target.value); if (k !== "step") free(); draw(); });
byId("start").addEventListener("change", (e) => { state.start = e.target.value; free(); draw(); });
byId("seed").addEventListener("input", (e) => {
  const s = Number(e.target.value), ok = e.target.value !== "" && Number.isInteger(s) && s >= 0 && s < DATA.starts.peaked.length;
  byId("note").textContent = ok ? "" : `Seeds here are 0 to ${DATA.starts.peaked.length - 1}.`;
  if (ok) { state.seed = s; free(); draw(); }
});
byId("labels").addEventListener("input", (e) => {
  const labels = parseLabels(e.target.value);
  byId("note").textContent = labels ? "" : `Labels are actions 0 to ${V - 1} with a sign, commas between: 11+, 5-.`;
  if (labels) { state.labels = labels; free(); draw(); }
});
byId("rows").addEventListener("click", (e) => { const b = e.target.closest("button"); if (b) choose(Number(b.dataset.row)); });
const dark = matchMedia("(prefers-color-scheme: dark)");
function theme(value) { document.documentElement.dataset.theme = value; byId("theme").textContent = value === "dark" ? "light" : "dark"; }
byId("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
theme(dark.matches ? "dark" : "light");
choose(DATA.rows.length - 1);
document.documentElement.dataset.ready = "1";
