// The list of problems: filter, sort, open one.
const P = DATA.problems;
const CHANGE = { k: "kept", g: "gained", l: "lost", n: "never" };
const PAGE = 100;

function explorer() {
  const root = byId("explorer");
  if (!root) return;
  const contrasts = DATA.contrasts, trained = contrasts.findIndex((c) => DATA.policies[c.policy].role === "trained");
  const state = { contrast: Math.max(0, trained), change: "", verdict: "", rate: "", task: "", text: "", sort: "loss", limit: PAGE, open: -1 };
  const share = (p, i) => (P.n[p][i] ? P.c[p][i] / P.n[p][i] : 0);
  const now = () => contrasts[state.contrast];
  const change = (i) => (now() ? CHANGE[now().change[i]] : "");
  const delta = (i) => (now() ? share(now().policy, i) - share(0, i) : 0);
  const rank = { lost: 0, gained: 1, kept: 2, never: 3 };
  const sorts = {
    loss: ["largest loss first", (a, b) => (rank[change(a)] === 0 ? 0 : 1) - (rank[change(b)] === 0 ? 0 : 1) || delta(a) - delta(b)],
    gain: ["largest gain first", (a, b) => delta(b) - delta(a)],
    hard: ["hardest for the base first", (a, b) => share(0, a) - share(0, b)],
    easy: ["easiest for the base first", (a, b) => share(0, b) - share(0, a)],
    task: ["by task", (a, b) => P.task[a].localeCompare(P.task[b])],
    order: ["as in the file", () => 0],
  };
  if (!contrasts.length) { delete sorts.loss; delete sorts.gain; state.sort = "hard"; }

  function chosen() {
    const text = state.text.toLowerCase();
    return P.id.map((_, i) => i).filter((i) =>
      (!state.change || change(i) === state.change) && (!state.task || P.task[i] === state.task) &&
      (!state.verdict || now().verdict[i] === state.verdict) && (!state.rate || now().rate[i] === state.rate) &&
      (!text || P.id[i].toLowerCase().includes(text) || P.preview[i].toLowerCase().includes(text))).sort((a, b) => sorts[state.sort][1](a, b) || a - b);
  }

  const body = h("tbody"), head = h("tr"), count = h("p", { class: "small", role: "status" }), more = h("button", { type: "button", on: { click: () => { state.limit += PAGE; list(); } } }, "Show more");
  const side = h("div", { class: "detail", tabindex: -1, "aria-label": "Chosen problem" }, h("p", { class: "empty" }, "Choose a problem to read its responses."));

  const cell = (p, i) => h("td", { class: "num" }, P.n[p][i] ? `${P.c[p][i]}/${P.n[p][i]}` : "–",
    h("span", { class: "rate", "aria-hidden": "true" }, h("i", { css: { width: `${100 * share(p, i)}%`, background: color(p) } })));
  const columns = () => (now() ? [0, now().policy] : [0]);

  function list() {
    const rows = chosen();
    head.replaceChildren(h("th", { scope: "col" }, "problem"), ...columns().map((p) => h("th", { scope: "col", class: "num", css: { width: "5.6rem" } }, clip(DATA.policies[p].name, 14))), now() ? h("th", { scope: "col", css: { width: "6.6rem" } }, "change") : "");
    body.replaceChildren(...rows.slice(0, state.limit).map((i) => h("tr", { "aria-selected": String(i === state.open), on: { click: (e) => { if (e.target.tagName !== "A") go(i); } } },
      h("td", null, h("a", { class: "q", href: link(i) }, plain(P.preview[i] || P.id[i])), h("div", { class: "pid" }, P.task[i] ? `${P.task[i]} · ` : "", P.id[i])),
      columns().map((p) => cell(p, i)),
      now() ? h("td", null, h("span", { class: `tag ${change(i)}` }, change(i)), h("div", { class: "pid" }, ["shrunk", "expanded", "undetermined"].includes(now().verdict[i]) ? now().verdict[i] : "")) : "")));
    count.textContent = `${rows.length} of ${P.id.length} problems`;
    more.hidden = rows.length <= state.limit;
  }

  const link = (i) => `#problem=${encodeURIComponent(P.id[i])}`;
  const go = (i) => { if (location.hash === link(i)) show(i); else location.hash = link(i); };

  async function show(i) {
    state.open = i;
    for (const row of body.children) row.setAttribute("aria-selected", String(row.querySelector("a").getAttribute("href") === link(i)));
    const rows = chosen(), at = rows.indexOf(i), step = (d) => h("button", { type: "button", disabled: at < 0 || !rows[at + d] && rows[at + d] !== 0, on: { click: () => go(rows[at + d]) } }, d < 0 ? "← previous" : "next →");
    const top = h("div", { class: "controls" }, step(-1), step(1), h("a", { class: "small", href: "#problems", on: { click: () => side.classList.remove("open") } }, "back to the list"), h("a", { class: "small", href: link(i) }, "link to this problem"));
    side.classList.add("open");
    const content = h("div", null, h("p", { class: "empty" }, "Unpacking…"));
    side.replaceChildren(top, h("h3", null, plain(P.id[i])), content);
    side.scrollTop = 0;
    try { content.replaceChildren(...problem(i, await details(i))); }
    catch (error) { content.replaceChildren(h("p", { class: "empty" }, String(error.message || error))); }
  }

  const option = (value, text) => h("option", { value }, text);
  const select = (label, key, options, numeric) => h("label", { class: "small" }, label, " ", h("select", { on: { change: (e) => { state[key] = numeric ? Number(e.target.value) : e.target.value; state.limit = PAGE; list(); } } }, options));
  const tasks = [...new Set(P.task)].filter(Boolean).sort(), verdicts = ["shrunk", "expanded", "undetermined"].filter((v) => contrasts.some((c) => c.verdict.includes(v))), rates = ["fell", "rose"].filter((v) => contrasts.some((c) => c.rate.includes(v)));
  const tally = (key) => contrasts.length ? ` (${(now().change.match(new RegExp(key, "g")) || []).length})` : "";
  const changes = () => [option("", "all"), ...Object.entries(CHANGE).map(([k, v]) => option(v, v + tally(k)))];
  const changeSelect = select("change", "change", changes());
  const which = contrasts.length > 1 ? select("compare base with", "contrast", contrasts.map((c, i) => option(i, DATA.policies[c.policy].name)), true) : null;
  if (which) { which.lastChild.value = String(state.contrast); which.lastChild.addEventListener("change", () => { const keep = state.change; changeSelect.lastChild.replaceChildren(...changes()); changeSelect.lastChild.value = keep; }); }
  root.replaceChildren(
    h("div", { class: "controls", role: "search" }, which, contrasts.length ? changeSelect : null,
      verdicts.length ? select("under FDR", "verdict", [option("", "all"), ...verdicts.map((v) => option(v, v))]) : null,
      rates.length ? select("success rate", "rate", [option("", "all"), ...rates.map((v) => option(v, v))]) : null,
      tasks.length > 1 ? select("task", "task", [option("", "all"), ...tasks.map((t) => option(t, t))]) : null,
      select("sort", "sort", Object.entries(sorts).map(([k, v]) => option(k, v[0]))),
      h("label", { class: "small" }, "search ", h("input", { type: "search", on: { input: (e) => { state.text = e.target.value; state.limit = PAGE; list(); } } }))),
    count,
    h("div", { class: "explorer" }, h("div", { class: "list", tabindex: 0, role: "region", "aria-label": "Problems" }, h("table", null, h("thead", null, head), body), more), side));
  list();

  const follow = (first) => {
    const found = /^#problem=(.*)$/.exec(location.hash);
    if (!found) return;
    let id = "";
    try { id = decodeURIComponent(found[1]); } catch { return; }
    const i = P.id.indexOf(id);
    if (i < 0) return;
    show(i);
    if (first || window.innerWidth < 992) byId("problems").scrollIntoView();
    side.focus({ preventScroll: true });
  };
  window.addEventListener("hashchange", () => follow(false));
  follow(true);
}
